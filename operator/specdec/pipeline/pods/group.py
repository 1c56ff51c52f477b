"""Available for a service on several nodes: a LeaderWorkerSet, whose groups are its replicas."""

from dataclasses import replace
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.conditions import Condition
from specdec.desired import group as desired
from specdec.desired import rescaled
from specdec.desired.serving import Revision
from specdec.pipeline.observed import Object, Observed
from specdec.pipeline.pods import certificate_rotation, readiness
from specdec.pipeline.pods.readiness import Served, Server
from specdec.pipeline.stage import POLL, Context, Outcome

# The label that the LeaderWorkerSet controller puts on its pods.
_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
# A container that is in creation for longer than this may wait for a missing Secret.
_CREATION = timedelta(minutes=1)


def serving(context: Context, revision: Revision) -> Outcome:
    """Roll the groups to the desired revision; an old group stops before its successor starts."""
    model, live = context.model, served(context.observed)
    condition = available(context, revision)
    certificate = certificate_rotation.newest(context.observed, revision.role, live)
    revision = replace(revision, certificate=certificate)
    objects = desired.objects(model, revision, context.facts.volume, model.replicas())
    return Outcome(
        (condition,),
        context.facts,
        proceed=True,
        apply=_secret(context) + objects,
        requeue_after=None if readiness.is_final(condition) else POLL,
    )


def rescale(context: Context) -> tuple[Object, ...]:
    """The live groups with the desired replicas: scaling and suspending do not wait for builds."""
    live, replicas = context.observed.group, context.model.replicas()
    if live is None or live["spec"].get("replicas") == replicas:
        return ()
    return (rescaled.leader_worker_set(context.model, live, replicas),)


def served(observed: Observed) -> Served | None:
    """What the live LeaderWorkerSet serves; None where there is none."""
    live = observed.group
    if live is None:
        return None
    return readiness.served(live, live["spec"]["leaderWorkerTemplate"]["leaderTemplate"])


def available(context: Context, revision: Revision | None) -> Condition:
    """Judge the live groups; `revision` is None while an earlier stage is not done."""
    if condition := readiness.without_pods(context):
        return condition
    return readiness.judge(context, _server(context), revision)


def _server(context: Context) -> Server:
    title = f"{names.GROUP_KIND} {names.group_name(context.model)}"
    live, actual = context.observed.group, served(context.observed)
    if live is None or actual is None:
        return Server(title, "target", None)
    status, pods = live.get("status", {}), _pods(context)
    counts = [status.get(k, 0) for k in ("updatedReplicas", "readyReplicas", "replicas")]
    # The controller does not report to which generation its counts belong. While a pod of another
    # revision exists, the counts may still be those of the previous generation.
    updated = all(readiness.of_revision(pod, actual.repository) for pod in pods)
    return Server(
        title,
        "target",
        actual,
        pods,
        complete=counts == [context.model.spec.serving.replicas] * 3 and updated,
        ready=status.get("readyReplicas", 0),
        unit="groups",
        detail=f" of {live['spec']['leaderWorkerTemplate']['size']} pods",
    )


def _secret(context: Context) -> tuple[Object, ...]:
    """The Secret with the key that leader and workers share, if it may be missing.

    The operator never reads Secrets.

    The kubelet reports a missing Secret of a volume only in events. The pod's container stays in
    creation, but it does so during the pull of a large image too. Therefore the operator creates
    the Secret in both cases; if it exists, nothing changes.
    """
    now = context.observed.now
    missing = any(_creation_hangs(pod, now) for pod in _pods(context))
    if context.observed.group is not None and not missing:
        return ()
    return (desired.secret(context.model),)


def _creation_hangs(pod: Object, now: datetime) -> bool:
    """Whether the kubelet accepted a pod a while ago and has not created its container."""
    status = pod.get("status", {})
    creating = any(
        container.get("state", {}).get("waiting", {}).get("reason") == "ContainerCreating"
        for container in status.get("containerStatuses", [])
    )
    since = status.get("startTime")
    return creating and bool(since) and now - datetime.fromisoformat(since) > _CREATION


def _pods(context: Context) -> list[Object]:
    """The pods of all groups, leaders and workers, that are not being deleted."""
    name = names.group_name(context.model)
    return [
        pod
        for pod in context.observed.pods
        if pod["metadata"].get("labels", {}).get(_SET_LABEL) == name
        and not pod["metadata"].get("deletionTimestamp")
    ]
