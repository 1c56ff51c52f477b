"""Available: a Deployment of the wanted revision for each server, and what its pods say."""

from collections.abc import Mapping, Sequence

from specdec import backends
from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import FAILED, Condition, Type
from specdec.desired import serving as desired
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.pipeline import certificate_rotation, damage, diagnosis, endpoints
from specdec.pipeline.observed import Object, Observed, Ref, pod_ready
from specdec.pipeline.stage import POLL, Context, Outcome


def serving(context: Context) -> Outcome:
    """Want the Deployments; old pods serve until the new revision's are ready."""
    model = context.model
    live = live_revisions(context.observed)
    revisions = [
        certificate_rotation.certified(context.observed, revision, live.get(revision.role))
        for revision in backends.served(model, context.facts)
    ]
    replicas = _replicas(context)
    wanted = [desired.deployment(model, r, context.facts.volume, replicas) for r in revisions]
    condition = available(context, revisions)
    quiet = condition.status == "True" or condition.reason in ("Suspended", "NotDeployed")
    return Outcome(
        (condition,),
        context.facts,
        proceed=True,
        apply=tuple(wanted),
        delete=_superfluous(context, revisions) if quiet else (),
        requeue_after=None if quiet else POLL,
    )


def held(context: Context, volume: Volume) -> tuple[Object, ...]:
    """The live revisions with other replicas or a renewed certificate: none waits for a build."""
    model, replicas = context.model, _replicas(context)
    deployments = context.observed.deployments
    return tuple(
        desired.deployment(model, revision, volume, replicas)
        for role, live in live_revisions(context.observed).items()
        if (revision := certificate_rotation.certified(context.observed, live, live)) != live
        or deployments[role]["spec"].get("replicas") != replicas
    )


def live_revisions(observed: Observed) -> dict[str, Revision]:
    """What the live Deployments are set to serve, by role."""
    return {
        role: desired.read(live, live["spec"]["template"], role)
        for role, live in observed.deployments.items()
    }


def available(context: Context, wanted: Sequence[Revision] | None) -> Condition:
    """Judge the live Deployments; `wanted` is None while an earlier stage is not done yet."""
    model, live = context.model, live_revisions(context.observed)
    if model.spec.suspend:
        return _condition("Suspended", "no pods while spec.suspend is true")
    if model.spec.serving.replicas == 0:
        return _condition("NotDeployed", "spec.serving.replicas is 0: raise it to serve")
    revisions = {r.role: r for r in wanted} if wanted is not None else {}
    judged = [_judge(context, role, live, revisions.get(role)) for role in revisions or live]
    worst = min(judged, key=_rank)
    if worst.status != "True" or len(judged) == 1:
        return worst
    # Servers of one service are made of one repository: only the counts are said of each.
    return Condition(worst.type, "True", worst.reason, "; ".join(c.message for c in judged))


def _judge(
    context: Context, role: str, live: Mapping[str, Revision], wanted: Revision | None
) -> Condition:
    """One server's Deployment."""
    name, replicas = names.server_name(context.model, role), context.model.spec.serving.replicas
    deployment, revision = context.observed.deployments.get(role), live.get(role)
    if deployment is None or revision is None:
        return _condition("Starting", f"Deployment {name} is created")
    if wanted is not None and _content(revision) != _content(wanted):
        return _condition("Starting", f"Deployment {name} moves to {wanted.repository[:16]}")
    if _settled(deployment, replicas, context.model.spec.serving.enough):
        ready = deployment["status"]["readyReplicas"]
        of = "" if not revision.folder else f" of the {role}"
        message = f"{ready} of {replicas} pods{of} ready"
        message += f" with repository {revision.repository[:16]}"
        if ready < replicas:
            message += f"; {_trouble(context, revision).message}"
        return endpoints.reached(
            context, role, Condition(Type.AVAILABLE, "True", "PodsReady", message)
        )
    words = _trouble(context, revision)
    return _condition(words.reason, words.message + _still(deployment, replicas))


def _content(revision: Revision) -> tuple[str, str, str]:
    return revision.repository, revision.image, revision.folder


def _superfluous(context: Context, wanted: Sequence[Revision]) -> tuple[Ref, ...]:
    """Deployments of servers that the topology no longer has; the wanted ones serve already."""
    roles = {revision.role for revision in wanted}
    return tuple(
        Ref("apps/v1", "Deployment", live["metadata"]["name"])
        for role, live in context.observed.deployments.items()
        if role not in roles
    )


def _replicas(context: Context) -> int:
    return 0 if context.model.spec.suspend else context.model.spec.serving.replicas


def _settled(deployment: Object, replicas: int, enough: int) -> bool:
    """Nothing of another revision is left, and enough pods are ready."""
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    updated, ready, total = (
        status.get(k, 0) for k in ("updatedReplicas", "readyReplicas", "replicas")
    )
    if enough == replicas:
        return bool(updated == ready == total == replicas)
    return bool(updated == total and ready >= enough)


def _trouble(context: Context, live: Revision) -> Cause:
    """The first thing that keeps a pod of the live revision from being ready."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    name = names.server_name(context.model, live.role)
    pods = [p for p in context.observed.serving_pods(live.role) if _of_revision(p, live)]
    for pod in pods:
        log = context.observed.crashes.get(pod["metadata"]["name"], "")
        words = damage.waits(context, pod) or diagnosis.blocked(pod)
        words = words or diagnosis.crashed(pod, budget, log)
        if words:
            return words
    if stuck := diagnosis.stuck(context.observed.deployments[live.role]):
        return stuck
    waiting = [p["metadata"]["name"] for p in pods if not pod_ready(p)]
    if waiting:
        verb = "loads its" if len(waiting) == 1 else "load their"
        return Cause("Starting", f"{', '.join(sorted(waiting))} {verb} models")
    return Cause("Starting", f"Deployment {name} starts its pods")


def _of_revision(pod: Object, revision: Revision) -> bool:
    label = pod["metadata"].get("labels", {}).get(names.REPOSITORY)
    gone = pod["metadata"].get("deletionTimestamp")
    return label == revision.repository[:16] and not gone


def _rank(condition: Condition) -> int:
    """What needs somebody comes first, then what starts, then what serves."""
    if condition.status == "True":
        return 3
    if condition.reason in FAILED:
        return 0
    return 2 if condition.reason == "Starting" else 1


def _still(deployment: Object, replicas: int) -> str:
    ready = deployment.get("status", {}).get("readyReplicas", 0)
    return f"; {ready} of {replicas} pods answer meanwhile" if ready else "; no pod answers yet"


def _condition(reason: str, message: str) -> Condition:
    return Condition(Type.AVAILABLE, "False", reason, message)
