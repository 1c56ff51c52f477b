"""Available for a service on several nodes: its LeaderWorkerSet, and what its pods say."""

from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.desired import group as desired
from specdec.desired import serving as server
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.pipeline import certificate_rotation, damage, diagnosis, endpoints
from specdec.pipeline.observed import Object, Observed, pod_ready
from specdec.pipeline.stage import POLL, Context, Outcome

# The label by which the controller knows the pods of a LeaderWorkerSet.
_SET = "leaderworkerset.sigs.k8s.io/name"
# How long a pod's creation may take before its volumes are in doubt.
_PATIENCE = timedelta(minutes=1)


def serving(context: Context, revision: Revision) -> Outcome:
    """Want the groups; old ones serve until the new revision's are ready."""
    condition = available(context, revision)
    live = live_revision(context.observed)
    revision = certificate_rotation.certified(context.observed, revision, live)
    wanted = desired.objects(context.model, revision, context.facts.volume, _replicas(context))
    quiet = condition.status == "True" or condition.reason in ("Suspended", "NotDeployed")
    return Outcome(
        (condition,),
        context.facts,
        proceed=True,
        apply=_secret(context) + wanted,
        requeue_after=None if quiet else POLL,
    )


def held(context: Context, volume: Volume) -> tuple[Object, ...]:
    """The live revision with other replicas: scaling and suspending do not wait for a build."""
    live, revision, replicas = context.observed.group, live_revision(context.observed), None
    if live is not None:
        replicas = live["spec"].get("replicas")
    if revision is None or replicas == _replicas(context):
        return ()
    return (desired.leader_worker_set(context.model, revision, volume, _replicas(context)),)


def live_revision(observed: Observed) -> Revision | None:
    """What the live LeaderWorkerSet is set to serve; None when there is none."""
    live = observed.group
    if live is None:
        return None
    return server.read(live, live["spec"]["leaderWorkerTemplate"]["leaderTemplate"])


def available(context: Context, wanted: Revision | None) -> Condition:
    """Judge the live groups; `wanted` is None while an earlier stage is not done yet."""
    model, live = context.model, live_revision(context.observed)
    name, replicas = names.group_name(model), model.spec.serving.replicas
    if model.spec.suspend:
        return _condition("Suspended", "no pods while spec.suspend is true")
    if replicas == 0:
        return _condition("NotDeployed", "spec.serving.replicas is 0: raise it to serve")
    if live is None:
        return _condition("Starting", f"{names.GROUP_KIND} {name} is created")
    if wanted is not None and (live.repository, live.image) != (wanted.repository, wanted.image):
        message = f"{names.GROUP_KIND} {name} moves to {wanted.repository[:16]}"
        return _condition("Starting", message)
    if _settled(context, live):
        message = (
            f"{replicas} of {replicas} groups of {len(live.launch.slots)} pods ready with "
            f"repository {live.repository[:16]}"
        )
        return endpoints.reached(
            context, "target", Condition(Type.AVAILABLE, "True", "PodsReady", message)
        )
    words = _trouble(context, live)
    return _condition(words.reason, words.message + _still(context))


def _secret(context: Context) -> tuple[Object, ...]:
    """The group's key, where pods will want it or may miss it: it is never looked up.

    The kubelet says in events alone that a volume's Secret is not there; the pod merely stays in
    its creation, as it also does while a large image is pulled. Drawing a key that there is
    already changes nothing.
    """
    now = context.observed.now
    missed = any(_creating(pod, now) for pod in _pods(context))
    if context.observed.group is not None and not missed:
        return ()
    return (desired.secret(context.model),)


def _creating(pod: Object, now: datetime) -> bool:
    """Whether the kubelet has had a pod for a minute and has not started its container."""
    status = pod.get("status", {})
    waits = any(
        one.get("state", {}).get("waiting", {}).get("reason") == "ContainerCreating"
        for one in status.get("containerStatuses", [])
    )
    since = status.get("startTime")
    return waits and bool(since) and now - datetime.fromisoformat(since) > _PATIENCE


def _settled(context: Context, live: Revision) -> bool:
    """Every group is of the live revision and ready.

    The controller does not say which generation its counts are of: pods of another revision give
    a stale count away.
    """
    status = (context.observed.group or {}).get("status", {})
    counts = [status.get(k, 0) for k in ("updatedReplicas", "readyReplicas", "replicas")]
    pods = _pods(context)
    right = all(_of_revision(pod, live) for pod in pods)
    return counts == [context.model.spec.serving.replicas] * 3 and right


def _trouble(context: Context, live: Revision) -> Cause:
    """The first thing that keeps a pod of the live revision from being ready."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    pods = [pod for pod in _pods(context) if _of_revision(pod, live)]
    for pod in pods:
        log = context.observed.crashes.get(pod["metadata"]["name"], "")
        words = damage.waits(context, pod) or diagnosis.blocked(pod)
        words = words or diagnosis.crashed(pod, budget, log)
        if words:
            return words
    waiting = sorted(pod["metadata"]["name"] for pod in pods if not pod_ready(pod))
    if waiting:
        return Cause("Starting", f"{', '.join(waiting)} of its group: not ready yet")
    return Cause("Starting", f"{names.GROUP_KIND} {names.group_name(context.model)} starts pods")


def _pods(context: Context) -> list[Object]:
    """The living pods of all groups, leaders and workers."""
    name = names.group_name(context.model)
    return [
        pod
        for pod in context.observed.pods
        if pod["metadata"].get("labels", {}).get(_SET) == name
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _of_revision(pod: Object, revision: Revision) -> bool:
    label = pod["metadata"].get("labels", {}).get(names.REPOSITORY)
    return bool(label == revision.repository[:16])


def _still(context: Context) -> str:
    ready = (context.observed.group or {}).get("status", {}).get("readyReplicas", 0)
    replicas = context.model.spec.serving.replicas
    return f"; {ready} of {replicas} groups answer meanwhile" if ready else "; no pod answers yet"


def _replicas(context: Context) -> int:
    return 0 if context.model.spec.suspend else context.model.spec.serving.replicas


def _condition(reason: str, message: str) -> Condition:
    return Condition(Type.AVAILABLE, "False", reason, message)
