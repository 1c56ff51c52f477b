"""What `specdec check` reads of a cluster, and the form of its verdicts."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from specdec.cluster.person import Right

Json = dict[str, Any]

# The rights that commands and people need in a namespace, each with its use.
RIGHTS = {
    Right("get", "specdec.dev", "speculativemodels"): "status",
    Right("list", "specdec.dev", "speculativemodels"): "status",
    Right("create", "specdec.dev", "speculativemodels"): "apply",
    Right("patch", "specdec.dev", "speculativemodels"): "apply, suspend and rerun",
    Right("delete", "specdec.dev", "speculativemodels"): "delete",
    Right("list", "batch", "jobs"): "status and logs",
    Right("list", "", "pods"): "status and logs",
    Right("get", "", "pods/log"): "status and logs",
    Right("get", "", "pods/proxy"): "top",
    Right("list", "events.k8s.io", "events"): "report",
}
READING = [right for right, use in RIGHTS.items() if use == "status"]


class Result(StrEnum):
    """How serious a result is; a warning may hinder some resources, or something was not read."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One line of the output; `fix` is empty if there is nothing to do."""

    name: str
    result: Result
    message: str
    fix: str = ""

    def as_json(self) -> Json:
        """The fields of the check by name."""
        return asdict(self)


@dataclass(frozen=True)
class Unread:
    """Why something could not be read, in one sentence."""

    message: str


@dataclass(frozen=True)
class Facts:
    """What a person can read of a cluster.

    Attributes:
        namespace: the namespace in which the person works.
        server: the version of the API server, such as v1.34.1.
        definition: the CustomResourceDefinition; None if it does not exist.
        served: whether discovery lists the kind SpeculativeModel.
        same_schema: whether the schema of `definition` is that of this release.
        operators: Deployments of operators.
        missing_rights: those of RIGHTS that the person lacks.
        nodes, storage_classes: plain objects.
    """

    namespace: str
    server: str
    definition: Json | Unread | None
    served: bool
    same_schema: bool
    operators: list[Json] | Unread
    missing_rights: tuple[Right, ...]
    nodes: list[Json] | Unread
    storage_classes: list[Json] | Unread


def containers(deployment: Json) -> list[Json]:
    """The containers of a Deployment's pods."""
    listed: list[Json] = deployment["spec"]["template"]["spec"]["containers"]
    return listed
