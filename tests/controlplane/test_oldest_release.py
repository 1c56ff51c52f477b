"""The CRD on an API server that emulates the oldest Kubernetes release it can."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster import ClusterError, ControlPlane
from controlplane.conftest import define
from controlplane.specm import Resources
from support.crd_cases import good
from support.documents import definition
from support.quickstarts import ROOT

pytestmark = pytest.mark.controlplane

# The charts also permit 1.30, which the API server of these tests cannot emulate.
OLDEST = "1.31"


@pytest.fixture(scope="module")
def oldest() -> Iterator[ControlPlane]:
    with ControlPlane("oldest-release", emulated=OLDEST, kwok=False) as plane:
        yield plane


def test_oldest_release_accepts_the_definition_and_good_resources(oldest: ControlPlane) -> None:
    define(oldest)
    resources = Resources(oldest.kubeconfig, "default")
    try:
        for case in good():
            resources.create(case.resource(), dry_run=True)
    finally:
        resources.close()


def test_newer_function_in_a_rule_would_be_refused(oldest: ControlPlane) -> None:
    """Check that the server emulates the old release, on which the previous test depends."""
    newer: dict[str, Any] = copy.deepcopy(definition())
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # Kubernetes has this function since 1.33.
    rule = {"rule": "!isSemver(self.metadata.name)"}
    schema["x-kubernetes-validations"].append(rule)
    with pytest.raises(ClusterError, match="undeclared reference to 'isSemver'"):
        oldest.kubectl(
            *("create", "--dry-run=server", "-f", "-"), stdin=yaml.safe_dump(_renamed(newer))
        )


def test_charts_name_the_oldest_release() -> None:
    major, minor = OLDEST.split(".")
    needed = f"{major}.{int(minor) - 1}"
    for chart in ("operator", "model"):
        text = (ROOT / "charts" / f"specdec-{chart}" / "Chart.yaml").read_text("utf-8")
        assert yaml.safe_load(text)["kubeVersion"] == f">={needed}.0-0"


def _renamed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the definition under a new name, because a stored definition may keep its rules."""
    names = body["spec"]["names"]
    names |= {"plural": "others", "singular": "other", "kind": "Other", "shortNames": []}
    names.pop("listKind", None)
    body["metadata"] = {"name": f"others.{body['spec']['group']}"}
    return body
