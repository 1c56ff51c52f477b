"""A resource, its children and fixed decisions, for reconciles against `FakeCluster`."""

from typing import Any

from specdec.api import names
from specdec.api.conditions import OPTIONAL, Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Observed

KEY = ("ns", "pair")
IMAGES = Images("operator:1", "reference:1")
DONE = tuple(Condition(t, "True", AcceptedReason.VALID, "fine") for t in Type if t not in OPTIONAL)


def resource(**members: Any) -> dict[str, Any]:
    source = {"pvc": {"claimName": "pair", "path": "target"}}
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": "pair", "namespace": "ns", "uid": "uid-pair", "generation": 3},
        "spec": {
            "runtime": {"backend": "Reference"},
            "target": {"source": source},
            "speculation": {"method": "None"},
            "storage": {"size": "1Gi"},
        },
        **members,
    }


def child(kind: str = "Service", name: str = "pair", component: str = "network") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {
                names.MANAGED_BY: names.MANAGER,
                names.MODEL: "pair",
                names.COMPONENT: component,
            },
        },
        "spec": {"ports": [{"name": "http", "port": 8000}]},
    }


class Decided:
    """Returns a fixed decision and records what was observed."""

    def __init__(self, **members: Any) -> None:
        self.decision = Decision(**{"conditions": DONE, "status": {"phase": "Serving"}, **members})
        self.observed: list[Observed] = []

    def __call__(self, model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
        self.observed.append(observed)
        return self.decision
