"""The Job that brings both checkpoints onto the volume and looks at them; it takes no GPU."""

from typing import Any

from specdec.api import names
from specdec.api.model import ModelSpec, SpeculativeModel
from specdec.desired import pod
from specdec.desired.child import given, metadata
from specdec.desired.pod import Container, Volume

SOURCES = "/sources"
# Exit code of a Job of ours that trying again cannot mend.
PERMANENT = 2
_BACKOFF = 4
_RESOURCES = {
    "requests": {"cpu": "250m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


def source_hash(model: ModelSpec, volume: Volume) -> str:
    """What decides whether a checkpoint has to be fetched (again): its source and the volume."""
    return names.digest({"source": _source(model), "volume": volume.identity})


def content(model: SpeculativeModel, volume: Volume) -> str:
    """The content hash of the fetch Job: the sources of all models and how they are reached."""
    sources = {role: source_hash(spec, volume) for role, spec in model.models.items()}
    tokens = {role: _token(role, spec) for role, spec in model.models.items()}
    return names.digest({"sources": sources, "tokens": tokens})


def job_name(model: SpeculativeModel, volume: Volume) -> str:
    """The name of the fetch Job."""
    return names.job_name(model, "fetch", content(model, volume))


def plan(model: SpeculativeModel) -> dict[str, Any]:
    """What `specdec.jobs.fetch` is told."""
    models = model.models.items()
    return {
        "models": {role: _source(spec) for role, spec in models},
        "check": {"tensorParallel": {role: spec.parallelism.tensor for role, spec in models}},
    }


def job(model: SpeculativeModel, volume: Volume, image: str) -> dict[str, Any]:
    """The fetch Job; `image` is the operator's own."""
    mounted = _mounted(model, volume)
    container = Container(
        name="fetch",
        image=image,
        pull_policy="IfNotPresent",
        command=["python", "-m", "specdec.jobs.fetch", "--plan", names.canonical(plan(model))],
        env=[*_settings(), *(env for role, m in model.models.items() for env in _token(role, m))],
        mounts=[
            {"name": name, "mountPath": f"{SOURCES}/{role}", "readOnly": True}
            for role, (name, _) in mounted.items()
        ],
        resources=_RESOURCES,
    )
    claims = {name: claim for name, claim in mounted.values() if name != pod.MODELS}
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for name, claim in claims.items()
    ]
    name = job_name(model, volume)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(model, name, "fetch"),
        "spec": own_job(model, container, volume, "fetch", volumes),
    }


def _mounted(model: SpeculativeModel, volume: Volume) -> dict[str, tuple[str, str]]:
    """The pod's volume and its claim by role, for models that lie on a claim.

    One volume for each claim: a pod with two volumes of one claim never starts, because the
    kubelet takes them for the same and mounts only one.
    """
    volumes = {volume.claim: pod.MODELS}
    found = {}
    for role, spec in model.models.items():
        if spec.source.pvc is not None:
            claim = spec.source.pvc.claim_name
            found[role] = (volumes.setdefault(claim, f"source-{role}"), claim)
    return found


def own_job(
    model: SpeculativeModel,
    container: Container,
    volume: Volume,
    component: str,
    volumes: list[dict[str, Any]],
) -> dict[str, Any]:
    """The spec of a Job that runs our own image: an error that stays ends it at once."""
    template = pod.template(
        container,
        volume,
        pod.labels(names.labels(model, component), volume),
        volumes=volumes,
        restartPolicy="Never",
        **given(imagePullSecrets=pod.pull_secrets(model)),
    )
    spec = pod.job_spec(template, _BACKOFF, None)
    fail = {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": container.name,
            "operator": "In",
            "values": [PERMANENT],
        },
    }
    spec["podFailurePolicy"]["rules"].insert(0, fail)
    return spec


def _source(model: ModelSpec) -> dict[str, Any]:
    """The source as the Job reads it, without any secret."""
    source = model.source
    if source.hugging_face is not None:
        hub = source.hugging_face
        where = given(repo=hub.repo, revision=hub.revision, endpoint=hub.endpoint)
        return {"huggingFace": where}
    if source.pvc is not None:
        return {"pvc": {"claimName": source.pvc.claim_name, "path": source.pvc.path}}
    return {}


def _token(role: str, model: ModelSpec) -> list[dict[str, Any]]:
    """The environment variable with the hub's token, if the source names a Secret."""
    hub = model.source.hugging_face
    if hub is None or hub.token_secret_ref is None:
        return []
    reference = {"name": hub.token_secret_ref.name, "key": hub.token_secret_ref.key}
    return [{"name": f"HF_TOKEN_{role.upper()}", "valueFrom": {"secretKeyRef": reference}}]


def _settings() -> list[dict[str, str]]:
    return [
        # The hub's plain HTTP path resumes a partial file and needs little memory.
        {"name": "HF_HUB_DISABLE_XET", "value": "1"},
        {"name": "HF_HUB_DISABLE_TELEMETRY", "value": "1"},
        {"name": "HF_HUB_DISABLE_PROGRESS_BARS", "value": "1"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
