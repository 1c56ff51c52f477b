"""Validates objects by the published schemas of Kubernetes, and refuses unknown fields."""

from functools import cache

import pytest
from kubernetes_validate import SchemaNotFoundError, ValidationError, utils, validate

from chart.helm import Object
from cluster import binaries

# Kinds without a Kubernetes schema: tests with a control plane check them by their CRDs.
FOREIGN = {
    "Application",
    "ApplicationSet",
    "EndpointPickerConfig",
    "HTTPRoute",
    "InferenceObjective",
    "InferencePool",
    "LeaderWorkerSet",
    "PodMonitor",
    "PrometheusRule",
    "ScaledObject",
    "ServiceMonitor",
    "SpeculativeModel",
}
OURS = binaries.KUBERNETES.rpartition(".")[0]
# The oldest release that the CRD needs, this project's release, and the newest published release.
RELEASES = ("1.30", OURS, utils.latest_version())

# Without a cache, the library reads megabytes of definitions again for every object.
utils.schema_contents = cache(utils.schema_contents)


def require_valid(bodies: list[Object], release: str = OURS) -> set[str]:
    """Check all objects except kinds of other projects; return the kinds that passed."""
    passed = set()
    for body in bodies:
        try:
            validate(body, release, strict=True)
        except SchemaNotFoundError:
            assert body["kind"] in FOREIGN, body["kind"]
        except ValidationError as error:
            where = "/".join(map(str, error.path))
            pytest.fail(f"{body['kind']} {body['metadata']['name']}: {where}: {error.message}")
        else:
            passed.add(body["kind"])
    return passed
