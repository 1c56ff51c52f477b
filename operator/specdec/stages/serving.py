"""Available: the Deployment of the wanted revision, and what its pods say."""

from typing import Any

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.desired import serving as desired
from specdec.desired.pod import GPU, Volume
from specdec.desired.serving import Revision
from specdec.observed import Object, Observed
from specdec.stages import backends, progress
from specdec.stages.progress import Words
from specdec.stages.stage import POLL, Context, Outcome
from specdec.triton import launch


def serving(context: Context) -> Outcome:
    """Want the Deployment; old pods serve until the new revision's are ready."""
    model = context.model
    revision = backends.served(model, context.facts)
    replicas = 0 if model.spec.suspend else model.spec.serving.replicas
    wanted = desired.deployment(model, revision, context.facts.volume, replicas)
    condition = available(context, revision)
    quiet = condition.status == "True" or condition.reason in ("Suspended", "NotDeployed")
    return Outcome(
        (condition,),
        context.facts,
        proceed=True,
        apply=(wanted,),
        retry_after=None if quiet else POLL,
    )


def held(context: Context, volume: Volume) -> Object | None:
    """The live revision with other replicas: scaling and suspending do not wait for a build."""
    live, model = live_revision(context.observed), context.model
    replicas = 0 if model.spec.suspend else model.spec.serving.replicas
    deployment = context.observed.deployment
    if live is None or deployment is None or deployment["spec"].get("replicas") == replicas:
        return None
    return desired.deployment(model, live, volume, replicas)


def live_revision(observed: Observed) -> Revision | None:
    """What the live Deployment is set to serve; None when there is no Deployment."""
    deployment = observed.deployment
    if deployment is None:
        return None
    repository = deployment["metadata"].get("annotations", {}).get(names.REPOSITORY, "")
    containers = deployment["spec"]["template"]["spec"]["containers"]
    server: Object = next((c for c in containers if c["name"] == desired.CONTAINER), {"image": ""})
    gpus = server.get("resources", {}).get("limits", {}).get(GPU, 0)
    launched = launch.read(server.get("command", []))
    return Revision(repository, server["image"], int(gpus), launched)


def available(context: Context, wanted: Revision | None) -> Condition:
    """Judge the live Deployment; `wanted` is None while an earlier stage is not done yet."""
    model, deployment = context.model, context.observed.deployment
    name, replicas = model.metadata.name, model.spec.serving.replicas
    live = live_revision(context.observed)
    if model.spec.suspend:
        return _condition("Suspended", "no pods while spec.suspend is true")
    if replicas == 0:
        return _condition("NotDeployed", "spec.serving.replicas is 0: raise it to serve")
    if deployment is None or live is None:
        return _condition("Starting", f"Deployment {name} is created")
    if wanted is not None and (live.repository, live.image) != (wanted.repository, wanted.image):
        return _condition("Starting", f"Deployment {name} moves to {wanted.repository[:16]}")
    if _settled(deployment, replicas):
        ready = deployment["status"]["readyReplicas"]
        message = f"{ready} of {replicas} pods ready with repository {live.repository[:16]}"
        return Condition(Type.AVAILABLE, "True", "PodsReady", message)
    words = _trouble(context, live)
    return _condition(words.reason, words.message + _still(deployment, replicas))


def _settled(deployment: Object, replicas: int) -> bool:
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    counts = [status.get(k, 0) for k in ("updatedReplicas", "readyReplicas", "replicas")]
    return counts == [replicas] * 3


def _trouble(context: Context, live: Revision) -> Words:
    """The first thing that keeps a pod of the live revision from being ready."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    pods = [p for p in context.observed.serving_pods() if _of_revision(p, live)]
    for pod in pods:
        words = progress.blocked(pod) or progress.crashed(pod, budget)
        if words:
            return words
    deployment: dict[str, Any] = dict(context.observed.deployment or {})
    for condition in deployment.get("status", {}).get("conditions", []):
        if condition.get("reason") == "ProgressDeadlineExceeded":
            message = f"Deployment {context.model.metadata.name} makes no progress"
            return Words("RolloutStuck", f"{message}: {condition.get('message', '')}")
    waiting = [p["metadata"]["name"] for p in pods if not _ready(p)]
    if waiting:
        verb = "loads its" if len(waiting) == 1 else "load their"
        return Words("Starting", f"{', '.join(sorted(waiting))} {verb} models")
    return Words("Starting", f"Deployment {context.model.metadata.name} starts its pods")


def _of_revision(pod: Object, revision: Revision) -> bool:
    label = pod["metadata"].get("labels", {}).get(names.REPOSITORY)
    gone = pod["metadata"].get("deletionTimestamp")
    return label == revision.repository[:16] and not gone


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _still(deployment: Object, replicas: int) -> str:
    ready = deployment.get("status", {}).get("readyReplicas", 0)
    return f"; {ready} of {replicas} pods answer meanwhile" if ready else "; no pod answers yet"


def _condition(reason: str, message: str) -> Condition:
    return Condition(Type.AVAILABLE, "False", reason, message)
