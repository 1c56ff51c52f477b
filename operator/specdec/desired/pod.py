"""What all our pods share: the restricted security profile, the one volume and small mounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.api import names
from specdec.api.children import Tags
from specdec.api.model import SpeculativeModel
from specdec.api.operations import ResourceClaim
from specdec.api.pods import Pods
from specdec.api.value import REQUIRED
from specdec.api.volumes import ExtraVolume, ExtraVolumeMount
from specdec.desired.child import NO_TAGS, given

USER = 10001
GPU = "nvidia.com/gpu"
SHARED_MEMORY = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108
# NVIDIA's programs report their use to NVIDIA unless one of these variables is 1. Every container
# of a server's image has both.
NO_TELEMETRY = (
    {"name": "TRTLLM_NO_USAGE_STATS", "value": "1"},
    {"name": "DO_NOT_TRACK", "value": "1"},
)
_HOSTNAME = "kubernetes.io/hostname"
_TMP = "tmp"
_FIXED = Pods()
# The pod's volume that holds checkpoints, engines and repositories.
MODELS = "models"


@dataclass(frozen=True)
class Volume:
    """The claim that every stage uses.

    `identity` is the claim's uid, which differs for a new claim of the same name. With
    `single_node` (ReadWriteOnce) all pods of the claim must run on one node.
    """

    claim: str
    identity: str
    single_node: bool


@dataclass(frozen=True)
class Container:
    """A container of a pod.

    `template` adds the mount of /tmp, and for the first container that of the claim; `mounts` has
    all others. `tmp` is the name of the volume at /tmp. `user_env` has the variables that a
    resource sets; those in `env` have precedence. `extra` has further fields of the container, as
    Kubernetes has them.
    """

    name: str
    image: str
    pull_policy: str
    command: Sequence[str]
    env: Sequence[Mapping[str, Any]] = ()
    user_env: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    models_read_only: bool = False
    tmp: str = _TMP


@dataclass(frozen=True)
class Placement:
    """Where a pod may run, by the spec; for a single-node volume `template` adds an affinity."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)


def labels(base: Mapping[str, str], volume: Volume | None) -> dict[str, str]:
    """Pod labels: `base` and the claim, which the affinity of a single-node volume selects."""
    if volume is None:
        return dict(base)
    return {**base, names.CLAIM: names.claim_label(volume.claim)}


def template(
    container: Container,
    volume: Volume | None,
    pod_labels: Mapping[str, str],
    placement: Placement = Placement(),
    volumes: Sequence[Mapping[str, Any]] = (),
    tags: Tags = NO_TAGS,
    sidecars: Sequence[Container] = (),
    pods: Pods = _FIXED,
    native_sidecars: Sequence[Container] = (),
    first: Sequence[Container] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A pod template under the restricted profile; `spec` adds or overrides pod fields.

    Without a volume the pod has no models, and may run on any node. The `sidecars` mount the
    volume only if their own `mounts` have it. The `native_sidecars` start before the container and
    stop after it. The containers in `first` have ended before any of these starts.
    """
    return {
        "metadata": {
            "labels": {**tags.labels, **pod_labels},
            **given(annotations=dict(tags.annotations)),
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _pod_security(pods),
            "containers": [
                _container(container, with_models=volume is not None),
                *(_container(sidecar, with_models=False) for sidecar in sidecars),
            ],
            "volumes": [
                *_claim(container, volume),
                {"name": _TMP, "emptyDir": {}},
                *(dict(v) for v in volumes),
            ],
            **given(
                initContainers=[
                    _container(item, with_models=False) for item in (*first, *native_sidecars)
                ],
                serviceAccountName=pods.service_account_name,
                nodeSelector=dict(placement.node_selector),
                tolerations=[dict(t) for t in placement.tolerations],
                affinity=_affinity(placement.affinity, volume),
            ),
            **spec,
        },
    }


def job_spec(template_: Mapping[str, Any], backoff: int, deadline: int | None) -> dict[str, Any]:
    """The spec of a Job that keeps its failed pods; a drained node does not count as a failure."""
    ignore = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    return {
        "backoffLimit": backoff,
        "podFailurePolicy": {"rules": [ignore]},
        **given(activeDeadlineSeconds=deadline),
        "template": dict(template_),
    }


def with_gpus(
    resources: Mapping[str, Any], gpus: int, claims: Sequence[ResourceClaim] = ()
) -> dict[str, Any]:
    """The user's resources plus GPUs: by resource claims if there are any, otherwise by number."""
    if claims:
        requested = [{"name": claim.name, **given(request=claim.request)} for claim in claims]
        return {**resources, "claims": requested}
    if gpus == 0:
        return dict(resources)
    return {**resources, "limits": {**resources.get("limits", {}), GPU: str(gpus)}}


def shared_memory(size: str) -> dict[str, Any]:
    """The volume of the mount SHARED_MEMORY: its files count as memory of the container."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def hidden_gpus(resources: Mapping[str, Any]) -> list[dict[str, str]]:
    """The variable that keeps the node's GPUs from a container without devices.

    Many CUDA images set it to `all`, and NVIDIA's container runtime then gives the container every
    GPU of the node. With devices, the device plugin or the driver of the claim decides.
    """
    devices = [name for name in resources.get("limits", {}) if "/" in name]
    if devices or resources.get("claims"):
        return []
    return [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def resource_claims(claims: Sequence[ResourceClaim]) -> dict[str, Any]:
    """The pod's claims of dynamic resource allocation; nothing without any."""
    pod_claims = [
        {
            "name": claim.name,
            **given(
                resourceClaimName=claim.resource_claim_name,
                resourceClaimTemplateName=claim.resource_claim_template_name,
            ),
        }
        for claim in claims
    ]
    return given(resourceClaims=pod_claims)


def ports(numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    """The ports of a container, by name."""
    return [
        {"name": name, "containerPort": number, "protocol": "TCP"}
        for name, number in numbers.items()
    ]


def prefixed(item: ExtraVolume | ExtraVolumeMount) -> dict[str, Any]:
    """A volume or a mount of the resource, under a name that no volume of the operator has."""
    return {**item.model_dump(by_alias=True, exclude_none=True), "name": f"extra-{item.name}"}


def gpu_nodes(product: str | None, selector: Mapping[str, str], gpus: int) -> dict[str, str]:
    """The user's node selector, and for a pod with GPUs the GPU product of its engines."""
    if product is None or gpus == 0:
        return dict(selector)
    return {**selector, names.GPU_PRODUCT: product}


def pull_secrets(model: SpeculativeModel) -> list[dict[str, str]]:
    """The pull secrets of the resource, for every pod that it causes."""
    return [{"name": secret.name} for secret in model.spec.runtime.pull_secrets]


def _claim(container: Container, volume: Volume | None) -> list[dict[str, Any]]:
    if volume is None:
        return []
    claim = {"claimName": volume.claim} | given(readOnly=container.models_read_only)
    return [{"name": MODELS, "persistentVolumeClaim": claim}]


def _container(container: Container, *, with_models: bool) -> dict[str, Any]:
    models = {"name": MODELS, "mountPath": names.VOLUME}
    return {
        "name": container.name,
        "image": container.image,
        "imagePullPolicy": container.pull_policy,
        # The kubelet expands $(NAME) in a command, even to the value of a secret; $$ stays a $.
        **given(command=[argument.replace("$", "$$") for argument in container.command]),
        "env": _env(container),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            *([models | given(readOnly=container.models_read_only)] if with_models else []),
            {"name": container.tmp, "mountPath": "/tmp"},  # noqa: S108
            *(dict(m) for m in container.mounts),
        ],
        **given(resources=dict(container.resources)),
        **container.extra,
    }


def _env(container: Container) -> list[dict[str, Any]]:
    """The variables of the user without the names that the operator sets, then the operator's.

    Server-side apply refuses a container with two variables of one name.
    """
    ours = [*_own_env(), *(dict(item) for item in container.env)]
    taken = {item["name"] for item in ours}
    return [*(dict(i) for i in container.user_env if i["name"] not in taken), *ours]


def _own_env() -> list[dict[str, str]]:
    """A writable home directory and a user name, because no image's passwd file has this user.

    PyTorch uses the name in the path of its caches, and fails without one.
    """
    return [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "specdec"}]  # noqa: S108


def _pod_security(pods: Pods) -> dict[str, Any]:
    identity = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), USER)
    return {
        "runAsNonRoot": True,
        **(identity if pods.user == "Fixed" else {}),
        # The kubelet then checks only the owner of the volume's root. To change the owner of
        # terabytes of files would take minutes on every mount.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _affinity(affinity: Mapping[str, Any], volume: Volume | None) -> dict[str, Any]:
    """The user's affinity, and for a single-node volume an affinity to the claim's other pods."""
    if volume is None or not volume.single_node:
        return dict(affinity)
    term = {
        "labelSelector": {"matchLabels": {names.CLAIM: names.claim_label(volume.claim)}},
        "topologyKey": _HOSTNAME,
    }
    pods = dict(affinity.get("podAffinity", {}))
    pods[REQUIRED] = [*pods.get(REQUIRED, []), term]
    return {**affinity, "podAffinity": pods}
