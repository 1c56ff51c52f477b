"""The status of a service after a person takes its claim, or a right of the operator, away."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.api import MERGE_PATCH, Api
from controlplane.operating import Lab, until
from controlplane.pipeline import serve
from specdec.api import names

pytestmark = pytest.mark.controlplane

OURS = f"{names.MANAGED_BY}={names.MANAGER}"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/specdec-operator"


def test_claim_in_deletion_is_released_when_its_ended_jobs_go(lab: Lab) -> None:
    """The finished pods of the operator's own Jobs held such a claim for ever."""
    serve(lab, "pair")
    claim = lab.get("pvc", "pair-models")
    assert claim is not None
    lab.kubectl("delete", "pvc", "pair-models", "--wait=false")
    message = lab.wait("pair", "StorageReady", "False", "ClaimLost")["message"]
    assert "set spec.suspend to true" in message
    until(lambda: not lab.all("jobs", OURS), lambda: f"no ended Jobs: {lab.describe('pair')}")
    lab.patch("specm", "pair", {"spec": {"suspend": True}})

    def released() -> bool:
        live = lab.get("pvc", "pair-models")
        return live is None or live["metadata"]["uid"] != claim["metadata"]["uid"]

    until(released, lambda: f"a released claim: {lab.describe('pair')}")


@contextmanager
def without_right(lab: Lab, resource: str) -> Iterator[None]:
    """Take the operator's right on one kind away, and give it back at the end."""
    api = Api(lab.plane.kubeconfig)
    rules = api.call("GET", ROLE)["rules"]
    reduced = [rule for rule in copy.deepcopy(rules) if resource not in rule["resources"]]
    assert len(reduced) == len(rules) - 1
    api.call("PATCH", ROLE, {"rules": reduced}, MERGE_PATCH)
    try:
        yield
    finally:
        api.call("PATCH", ROLE, {"rules": rules}, MERGE_PATCH)


def test_right_on_one_kind_that_is_removed_is_reported_in_ready(lab: Lab) -> None:
    """Each resource kept the status of its old generation; only the log had the error."""
    serve(lab, "pair")
    with without_right(lab, "pods"):
        lab.patch("specm", "pair", {"spec": {"serving": {"replicas": 2}}})
        ready = lab.wait("pair", "Ready", "False", "Rejected")
        assert "cannot list resource" in ready["message"]
        assert "apply manifests/install/rbac.yaml" in ready["message"]
    # The operator tries again every minute; a change of the spec makes it try at once.
    lab.patch("specm", "pair", {"spec": {"serving": {"replicas": 1}}})
    lab.wait("pair")
