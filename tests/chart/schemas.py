"""The published schemas of Kubernetes, unknown fields refused."""

from functools import cache

import pytest
from kubernetes_validate import SchemaNotFoundError, ValidationError, utils, validate

from chart.helm import Object
from cluster import binaries

# Kinds of other projects: tests with a control plane check the real definitions.
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
# From the oldest that the definition needs to the newest that is published.
RELEASES = ("1.30", OURS, utils.latest_version())

# The library reads its megabytes of definitions again for every object.
utils.schema_contents = cache(utils.schema_contents)


def require_valid(bodies: list[Object], release: str = OURS) -> set[str]:
    """Every body passes, or is of a kind that others define; returns the kinds that passed."""
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
