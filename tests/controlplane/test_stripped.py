"""The operator restores removed metadata of a child at once, without another event."""

from collections.abc import Iterator

import pytest

from cluster import ControlPlane
from controlplane.operating import Lab, Object, Operator, until
from controlplane.pipeline import at_rest, serve
from specdec.api import names

pytestmark = pytest.mark.controlplane

OWNED = (
    ("deployment", "server"),
    ("service", "network"),
    ("job", "publish"),
    ("job", "engine"),
    ("configmap", "publish"),
    ("configmap", "engine"),
)
NOTED = (("deployment", "server"), ("service", "network"), ("pvc", "storage"))


@pytest.fixture(scope="module")
def served(operator: Operator, installed: ControlPlane) -> Iterator[Lab]:
    """Yield a namespace with one serving resource and an idle operator."""
    with Lab(installed, operator) as lab:
        serve(lab, "pair")
        at_rest(lab)
        yield lab


def child(lab: Lab, kind: str, component: str) -> Object:
    first, *_ = lab.all(kind, f"{names.COMPONENT}={component}")
    return first


def current(lab: Lab, kind: str, body: Object) -> Object:
    metadata: Object = (lab.get(kind, body["metadata"]["name"]) or {})["metadata"]
    return metadata


@pytest.mark.parametrize(("kind", "component"), OWNED, ids=str)
def test_removed_owner_reference_is_restored_at_once(
    served: Lab, kind: str, component: str
) -> None:
    body = child(served, kind, component)
    at_rest(served)
    served.patch(kind, body["metadata"]["name"], {"metadata": {"ownerReferences": None}})

    def owned() -> bool:
        owners = current(served, kind, body).get("ownerReferences", [])
        return bool(owners == body["metadata"]["ownerReferences"])

    until(owned, lambda: f"an owner of {kind}: {served.describe('pair')}")


@pytest.mark.parametrize(("kind", "component"), NOTED, ids=str)
def test_removed_annotations_are_restored_at_once(served: Lab, kind: str, component: str) -> None:
    body = child(served, kind, component)
    own = {
        key: value
        for key, value in body["metadata"].get("annotations", {}).items()
        if names.ours(key)
    }
    assert own
    at_rest(served)
    served.patch(kind, body["metadata"]["name"], {"metadata": {"annotations": None}})

    def noted() -> bool:
        return bool(own.items() <= current(served, kind, body).get("annotations", {}).items())

    until(noted, lambda: f"annotations of {kind}: {served.describe('pair')}")


def test_claim_whose_owner_cannot_be_restored_is_reported(
    served: Lab,
) -> None:
    """The operator may not delete claims, which this server requires for setting an owner."""
    served.patch("pvc", "pair-models", {"metadata": {"ownerReferences": None}})

    def reported() -> bool:
        message = served.condition("pair", "StorageReady")["message"]
        return "cannot set an ownerRef on a resource you can't delete" in message

    until(reported, lambda: served.describe("pair"))
    assert served.condition("pair")["status"] == "True"


def test_stripped_claim_is_reported_with_the_command_that_labels_it(served: Lab) -> None:
    """The advice was to delete the claim in use, and the resource could not be suspended."""
    at_rest(served)
    served.patch("pvc", "pair-models", {"metadata": {"labels": None, "ownerReferences": None}})
    served.patch("specm", "pair", {"spec": {"suspend": True}})
    message = served.wait("pair", "StorageReady", "False", "Rejected")["message"]
    until(
        lambda: (served.get("deployment", "pair") or {})["spec"]["replicas"] == 0,
        lambda: f"no replicas: {served.describe('pair')}",
    )
    command = message.partition("restore them: kubectl ")[2].partition(";")[0]
    served.plane.kubectl(*command.split())
    served.wait("pair", "StorageReady", "True")
    served.wait("pair", "Ready", "False", "Suspended")
    served.patch("specm", "pair", {"spec": {"suspend": False}})
    served.wait("pair", "Available", "True")
