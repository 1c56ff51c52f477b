"""A refused change of a claim does not stop the pipeline, and a user can undo it in the spec."""

import pytest

from cluster.api import Api
from controlplane.operating import Lab, Object, until
from controlplane.pipeline import resource, serve, unwritten

pytestmark = pytest.mark.controlplane


@pytest.fixture
def bound(lab: Lab) -> Lab:
    """Create a volume for the resource's claim, which no storage class can expand."""
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": lab.namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": lab.namespace, "name": "pair-models"},
        },
    }
    Api(lab.plane.kubeconfig).apply(volume)
    return lab


def resize(lab: Lab, size: str) -> None:
    lab.patch("specm", "pair", {"spec": {"storage": {"size": size}}})


def seen(lab: Lab) -> bool:
    """Return whether the status belongs to the current generation."""
    body = lab.get("specm", "pair") or {}
    return bool(body["status"]["observedGeneration"] == body["metadata"]["generation"])


def test_refused_expansion_is_reported_and_the_pipeline_continues(bound: Lab) -> None:
    serve(bound, "pair")
    bound.wait("pair", "StorageReady", "True", "Bound")
    resize(bound, "2Gi")

    def refused() -> Object | None:
        condition = bound.condition("pair", "StorageReady")
        return condition if "the claim stays as it is" in condition["message"] else None

    condition = until(refused, lambda: bound.describe("pair"))
    assert (condition["status"], condition["reason"]) == ("True", "Bound")
    assert "must support resize" in condition["message"]
    assert bound.condition("pair")["status"] == "True"

    bound.patch("specm", "pair", {"spec": {"serving": {"replicas": 2}}})
    until(
        lambda: (bound.get("deployment", "pair") or {})["spec"]["replicas"] == 2,
        lambda: f"a second replica: {bound.describe('pair')}",
    )
    bound.patch("specm", "pair", {"spec": {"suspend": True}})
    bound.wait("pair", "Ready", "False", "Suspended")


def test_refused_size_can_be_set_back(bound: Lab) -> None:
    bound.apply(resource("pair"))
    bound.wait("pair", "StorageReady", "True", "Bound")
    resize(bound, "2Gi")
    until(lambda: seen(bound), lambda: bound.describe("pair"))
    resize(bound, "1Gi")

    def clean() -> bool:
        message = bound.condition("pair", "StorageReady")["message"]
        return seen(bound) and message == "claim pair-models is bound (1Gi, ReadWriteMany)"

    until(clean, lambda: bound.describe("pair"))


def test_smaller_size_is_reported_and_not_applied(bound: Lab) -> None:
    bound.apply(resource("pair"))
    bound.wait("pair", "StorageReady", "True", "Bound")
    resize(bound, "512Mi")

    def kept() -> bool:
        return "it keeps 1Gi" in bound.condition("pair", "StorageReady")["message"]

    until(kept, lambda: bound.describe("pair"))
    condition = bound.condition("pair", "StorageReady")
    assert "set spec.storage.size (now 512Mi) to 1Gi" in condition["message"]
    assert condition["status"] == "True"
    unwritten(bound, "pair")
