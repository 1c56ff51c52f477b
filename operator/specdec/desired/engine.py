"""The Job that builds one engine, and the ConfigMap with its program and its plan.

All resources on the claim that use the engine share both objects. Each resource applies them under
a field manager of its own, so that the API server merges owners and labels. In the ConfigMap, only
the owner references and the sharer labels depend on the resources. The Job also has settings of
the resource that creates it, such as `spec.build`, pull secrets, `spec.pods`, labels and
annotations. A resource that finds the Job adds only its owner reference and its sharer label.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from specdec.api import names
from specdec.api.children import Tags
from specdec.api.model import SpeculativeModel
from specdec.api.quantity import amount
from specdec.desired import packages, pod
from specdec.desired.child import NO_TAGS, given
from specdec.desired.pod import Container, Placement, Volume

MOUNT = "/specdec/build"
CONTAINER = "build"
SCRIPT = "build_engine.py"
PLAN = "plan.json"
IMAGE = "image.json"
_GIB = 1 << 30
# /tmp of the pod: caches of the hub and of kernels, calibration data. Weights stay on the volume.
_SCRATCH = "8Gi"


@dataclass(frozen=True)
class Needs:
    """What a build takes from its node.

    Attributes:
        gpus: how many, 0 for a build on the CPU.
        memory: bytes without shared memory; None when they cannot be estimated.
        shared_memory: bytes of /dev/shm, unless the spec sets them; None for a build without it.
    """

    gpus: int
    memory: int | None = None
    shared_memory: int | None = None


def job_name(key: str, volume: Volume) -> str:
    """The name of the build Job and its ConfigMap."""
    return names.engine_job_name(key, volume.identity)


def config_map(
    model: SpeculativeModel,
    plan: Mapping[str, Any],
    volume: Volume,
    scripts: Mapping[str, str],
    image: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The build program (text by file name) and its plan, mounted read-only by the Job.

    `image` is what the server's image has to hold, None where the Job need not check it.
    """
    expected = {} if image is None else {IMAGE: names.canonical(image)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(model, plan["key"], volume),
        "data": {**scripts, **expected, PLAN: names.canonical(plan)},
    }


def job(
    model: SpeculativeModel,
    plan: Mapping[str, Any],
    volume: Volume,
    image: str,
    needs: Needs,
    operator_image: str,
    *,
    checked: bool = False,
) -> dict[str, Any]:
    """The build Job; `image` is the server's, `checked` whether the Job checks it first.

    Only the check selects the copied packages, so a Job without a check needs none.
    """
    build = model.spec.build
    copied = checked and packages.needed(model)
    key = plan["key"]
    shared = _shared_memory(build.shared_memory, needs)
    container = _container(model, image, needs, shared, checked=checked, copied=copied)
    name = job_name(key, volume)
    nodes = pod.gpu_nodes(model.gpu(plan["role"]).product, build.node_selector, needs.gpus)
    template = pod.template(
        container,
        volume,
        pod.labels(_labels(key), volume),
        Placement(nodes, build.tolerations, build.affinity),
        [
            {"name": "build", "configMap": {"name": name}},
            *([pod.shared_memory(shared)] if shared else []),
            *([packages.volume()] if copied else []),
        ],
        model.spec.metadata.job_pods,
        pods=model.spec.pods,
        first=[packages.container(model, operator_image)] if copied else [],
        restartPolicy="Never",
        **pod.resource_claims(build.resource_claims),
        **given(
            imagePullSecrets=pod.pull_secrets(model),
            priorityClassName=build.priority_class_name,
            runtimeClassName=build.runtime_class_name,
        ),
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(model, key, volume, model.spec.metadata.jobs),
        "spec": pod.job_spec(template, build.backoff_limit, build.active_deadline_seconds),
    }


def _container(
    model: SpeculativeModel,
    image: str,
    needs: Needs,
    shared: str | None,
    *,
    checked: bool,
    copied: bool,
) -> Container:
    build = model.spec.build
    resources = pod.with_gpus(
        _resources(build.resources, needs, shared), needs.gpus, build.resource_claims
    )
    return Container(
        name=CONTAINER,
        image=image,
        pull_policy=model.spec.runtime.pull_policy,
        command=[
            *("python3", f"{MOUNT}/{SCRIPT}", "--plan", f"{MOUNT}/{PLAN}"),
            *(("--image", f"{MOUNT}/{IMAGE}") if checked else ()),
        ],
        env=[
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            *pod.hidden_gpus(resources),
            *pod.NO_TELEMETRY,
        ],
        mounts=[
            {"name": "build", "mountPath": MOUNT, "readOnly": True},
            *([pod.SHARED_MEMORY] if shared else []),
            *([packages.MOUNT] if copied else []),
        ],
        resources=resources,
    )


def _shared_memory(given_: str | None, needs: Needs) -> str | None:
    """The size of /dev/shm as a quantity: the user's, else the estimate."""
    if given_ is not None or needs.shared_memory is None:
        return given_
    return f"{-(-needs.shared_memory // _GIB)}Gi"


def _resources(given_: Mapping[str, Any], needs: Needs, shared: str | None) -> dict[str, Any]:
    """The user's resources, with estimated requests for what they do not set.

    An estimate is never a limit: a wrong limit would kill the build. Files in /dev/shm count as
    memory of the container.
    """
    if needs.memory is None:
        return dict(given_)
    files = amount(shared or 0)
    memory = needs.memory + (math.ceil(files) if isinstance(files, Decimal) else 0)
    estimate = {"memory": f"{-(-memory // _GIB)}Gi", "ephemeral-storage": _SCRATCH}
    # A limit without a request is a request of the same size.
    requested = {**given_.get("limits", {}), **given_.get("requests", {})}
    missing = {name: value for name, value in estimate.items() if name not in requested}
    if not missing:
        return dict(given_)
    return {**given_, "requests": {**given_.get("requests", {}), **missing}}


def joined(model: SpeculativeModel, key: str, volume: Volume) -> dict[str, Any]:
    """What a resource applies to a Job that another one created: its owner reference and label."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(model, key, volume)}


def _labels(key: str) -> dict[str, str]:
    return {
        names.APP: "specdec",
        names.MANAGED_BY: names.MANAGER,
        names.COMPONENT: "engine",
        names.ENGINE: key[:16],
    }


def _metadata(
    model: SpeculativeModel, key: str, volume: Volume, tags: Tags = NO_TAGS
) -> dict[str, Any]:
    sharer = {names.sharer(model.metadata.name): ""}
    return {
        "name": job_name(key, volume),
        "namespace": model.metadata.namespace,
        "labels": {**tags.labels, **pod.labels(_labels(key), volume), **sharer},
        "ownerReferences": names.owned_by(model),
        **given(annotations=dict(tags.annotations)),
    }
