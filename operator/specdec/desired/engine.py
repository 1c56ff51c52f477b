"""The Job that builds one engine, and the ConfigMap with its program and its plan.

Both belong to every resource on the claim that wants the engine: each applies them under a field
manager of its own, so that the API server merges owners and labels. Therefore nothing in them may
depend on the resource except its owner reference and its sharer label.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import pod
from specdec.desired.child import given
from specdec.desired.pod import Container, Placement, Volume

MOUNT = "/specdec/build"
SCRIPT = "build_engine.py"
PLAN = "plan.json"


def job_name(key: str, volume: Volume) -> str:
    """The name of the build Job and its ConfigMap."""
    return names.engine_job_name(key, volume.identity)


def config_map(
    model: SpeculativeModel, plan: Mapping[str, Any], volume: Volume, scripts: Mapping[str, str]
) -> dict[str, Any]:
    """The build program (text by file name) and its plan, mounted read-only by the Job."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(model, plan["key"], volume),
        "data": {**scripts, PLAN: names.canonical(plan)},
    }


def job(
    model: SpeculativeModel, plan: Mapping[str, Any], volume: Volume, image: str, gpus: int
) -> dict[str, Any]:
    """The build Job; `image` is the server's, `gpus` how many devices it needs."""
    build = model.spec.build
    key = plan["key"]
    container = Container(
        name="build",
        image=image,
        pull_policy=model.spec.runtime.pull_policy,
        command=["python3", f"{MOUNT}/{SCRIPT}", "--plan", f"{MOUNT}/{PLAN}"],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        mounts=[{"name": "build", "mountPath": MOUNT, "readOnly": True}],
        resources=pod.with_gpus(build.resources, gpus),
    )
    name = job_name(key, volume)
    nodes = pod.gpu_nodes(model, build.node_selector, gpus)
    template = pod.template(
        container,
        volume,
        pod.labels(_labels(key), volume),
        Placement(nodes, build.tolerations, build.affinity),
        [{"name": "build", "configMap": {"name": name}}],
        restartPolicy="Never",
        **given(imagePullSecrets=pod.pull_secrets(model)),
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(model, key, volume),
        "spec": pod.job_spec(template, build.backoff_limit, build.active_deadline_seconds),
    }


def joined(model: SpeculativeModel, key: str, volume: Volume) -> dict[str, Any]:
    """Joining a Job that another resource made: an owner and a label, nothing of its spec."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(model, key, volume)}


def _labels(key: str) -> dict[str, str]:
    return {
        names.APP: "specdec",
        names.MANAGED_BY: names.MANAGER,
        names.COMPONENT: "engine",
        names.ENGINE: key[:16],
    }


def _metadata(model: SpeculativeModel, key: str, volume: Volume) -> dict[str, Any]:
    sharer = {names.sharer(model.metadata.name): ""}
    return {
        "name": job_name(key, volume),
        "namespace": model.metadata.namespace,
        "labels": pod.labels(_labels(key), volume) | sharer,
        "ownerReferences": names.owned_by(model),
    }
