"""Names, labels, content hashes and the layout of the volume, shared by builders and readers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specdec.api.resource_kind import API_VERSION, GROUP, KIND

if TYPE_CHECKING:
    # Jobs read names and need no model. To load it takes longer than the rest of their start.
    from specdec.api.model import SpeculativeModel

MANAGER = "specdec"
MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
APP = "app.kubernetes.io/name"
# Selects the operator's own objects.
OPERATOR = f"{APP}=specdec-operator"
MODEL = f"{GROUP}/model"
ENGINE = f"{GROUP}/engine"
CLAIM = f"{GROUP}/claim"
REPOSITORY = f"{GROUP}/repository"
CERTIFICATE = f"{GROUP}/certificate"
# The node label that GPU feature discovery writes.
GPU_PRODUCT = "nvidia.com/gpu.product"
# Annotation of a Service: the kinds of the optional objects that the resource may have.
OPTIONAL_KINDS_ANNOTATION = f"{GROUP}/optional-kinds"
# The controller of groups of pods that serve as one.
GROUP_API, GROUP_KIND = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
LABEL_LIMIT = 63
# The digits of a repository's hash in the label REPOSITORY.
REVISION_DIGITS = 16
# The component label of serving pods, by the role whose server they are.
SERVERS = {"target": "server", "draft": "draft-server"}
# The component label of a group's other pods: the leader starts MPI ranks in them.
WORKER = "worker"

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)

# Inside every pod that mounts the volume.
VOLUME = "/models"
CHECKPOINTS = f"{VOLUME}/checkpoints"
ENGINES = f"{VOLUME}/engines"
REPOSITORIES = f"{VOLUME}/repositories"


def manifest(repository: str) -> str:
    """The path in a pod of the list of all files that servers of a repository (hash) read."""
    return f"{REPOSITORIES}/.manifest-{repository}.json"


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values: sorted keys, no blanks, only ASCII."""
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:
    """sha256 in hex over the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def labels(model: SpeculativeModel, component: str) -> dict[str, str]:
    """The labels of a child that belongs to one resource alone."""
    name = model.metadata.name
    return {
        APP: "specdec",
        MANAGED_BY: MANAGER,
        INSTANCE: name,
        COMPONENT: component,
        MODEL: name,
    }


def selector(model: SpeculativeModel, role: str = "target") -> dict[str, str]:
    """The labels that select the pods of a server; the target's are in `status.selector`."""
    return {INSTANCE: model.metadata.name, COMPONENT: SERVERS[role], MANAGED_BY: MANAGER}


def server_name(model: SpeculativeModel, role: str = "target") -> str:
    """The name of a server's Deployment and Service: `<name>`, or `<name>-draft`."""
    return model.metadata.name if role == "target" else f"{model.metadata.name}-{role}"


def servers(model: SpeculativeModel) -> tuple[str, ...]:
    """The roles that have a server of their own, target first."""
    return tuple(model.models) if model.separate_servers else ("target",)


def sharer(name: str) -> str:
    """The label key that an engine Job has for each resource (name) that shares it."""
    return f"models.{GROUP}/{name}"


def models(labels: Mapping[str, str]) -> list[str]:
    """The names of the resources that own a child, by its labels."""
    prefix = sharer("")
    sharers = [key.removeprefix(prefix) for key in labels if key.startswith(prefix)]
    return [*([labels[MODEL]] if MODEL in labels else []), *sharers]


def ours(key: str) -> bool:
    """Whether a label key belongs to the operator, so that no resource may set it."""
    prefix = key.partition("/")[0]
    return prefix in ("app.kubernetes.io", GROUP) or prefix.endswith(f".{GROUP}")


def owned_by(model: SpeculativeModel) -> list[dict[str, Any]]:
    """The owner reference of every child, by which Kubernetes deletes it with its resource."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": model.metadata.name,
            "uid": model.metadata.uid,
            "controller": False,
            "blockOwnerDeletion": True,
        }
    ]


def claim_name(model: SpeculativeModel) -> str:
    """The name of the claim that all stages use: the user's own, or `<name>-models`."""
    return claim(model.spec.storage.existing_claim, model.metadata.name)


def claim(existing: str | None, name: str) -> str:
    """The claim of a resource (name): the existing one that it sets, or `<name>-models`."""
    return existing or f"{name}-models"


def claim_label(claim: str) -> str:
    """The claim as a label value: its name, or a hash of a name too long for a label."""
    if len(claim) <= LABEL_LIMIT:
        return claim
    return hashlib.sha256(claim.encode()).hexdigest()[:32]


def group_name(model: SpeculativeModel) -> str:
    """The name of the LeaderWorkerSet, and of the Secret and ConfigMap of its agent.

    The agent (`images/serving/agent.py`) starts MPI ranks in the workers' pods. The controller of
    the LeaderWorkerSet creates a Service of that name too.
    """
    return f"{model.metadata.name}-group"


def job_name(model: SpeculativeModel, stage: str, content: str) -> str:
    """`<name>-<stage>-<first 10 hex digits of the content hash>`."""
    return f"{model.metadata.name}-{stage}-{content[:10]}"


def variable(name: str, role: str) -> str:
    """The environment variable that carries a role's secret into the fetch Job."""
    return f"{name}_{role.upper().replace('-', '_')}"


def engine_job_name(key: str, claim: str) -> str:
    """The name of the Job that builds an engine on a claim; all resources share that Job.

    `claim` is the uid of the claim. An engine on a deleted volume therefore has another Job than
    the same engine on the volume that replaced it.
    """
    return f"engine-{key[:16]}-{hashlib.sha256(claim.encode()).hexdigest()[:6]}"
