"""The workload that runs the serving pods: Deployments, or a LeaderWorkerSet.

There is one Deployment for each server, or one LeaderWorkerSet if a replica is a group of pods on
several nodes. If the spec changes from one to the other, the old pods serve until the new ones are
ready. The ConfigMap with the programs of the pods is applied before the workload.
"""

from dataclasses import replace

from specdec import backends
from specdec.api import names
from specdec.api.conditions import Condition
from specdec.desired import programs
from specdec.pipeline.observed import Object, Observed, Ref
from specdec.pipeline.pods import group, serving
from specdec.pipeline.pods.readiness import Served
from specdec.pipeline.stage import Context, Outcome


def workload(context: Context) -> Outcome:
    """Apply the workload that the spec asks for; once it serves, delete the other workload.

    Programs that no pod mounts any more are deleted too.
    """
    (first, *_) = backends.desired_revisions(context.model, context.facts)
    grouped = bool(first.launch.slots)
    outcome = group.serving(context, first) if grouped else serving.serving(context)
    available_ = any(c.status == "True" for c in outcome.conditions)
    outcome = replace(
        outcome,
        facts=replace(outcome.facts, available=available_),
        apply=(programs.config_map(context.model), *outcome.apply),
        delete=outcome.delete + _outdated_programs(context),
    )
    if outcome.requeue_after is not None:
        return outcome
    other = _deployments(context.observed) if grouped else _group(context)
    return replace(outcome, delete=outcome.delete + other)


def exists(observed: Observed) -> bool:
    """Whether the resource has a workload."""
    return bool(observed.deployments) or observed.group is not None


def available(context: Context) -> Condition:
    """Judge the live workload while an earlier stage is not done."""
    observed = context.observed
    grouped = context.model.spec.serving.nodes_per_replica > 1 or not observed.deployments
    if observed.group is not None and grouped:
        return group.available(context, None)
    return serving.available(context, None)


def rescale(context: Context) -> tuple[Object, ...]:
    """The live workload with the desired replicas: scaling and suspending do not wait for builds.

    If the workload mounts the programs of this release, their ConfigMap comes first.
    """
    used = programs.name(context.model) in _mounted(context.observed)
    first = (programs.config_map(context.model),) if used else ()
    return first + serving.rescale(context) + group.rescale(context)


def served(observed: Observed) -> list[Served]:
    """What each part of the live workload serves."""
    grouped = group.served(observed)
    return [*serving.served(observed).values(), *([grouped] if grouped else [])]


def counts(context: Context) -> tuple[int, int]:
    """The replicas of the service, and how many of them are ready.

    A replica is one pod of each server, or one group. While one workload replaces the other, the
    larger number counts. The pods of a server with its own number of replicas are not counted. But
    no replica is ready while that server has no ready pod.
    """
    model, observed = context.model, context.observed
    statuses = {role: live.get("status", {}) for role, live in observed.deployments.items()}
    separate = [role for role in statuses if model.own_replicas(role) is not None]
    servers = [status for role, status in statuses.items() if role not in separate]
    groups = (observed.group or {}).get("status", {})
    total = max((status.get("replicas", 0) for status in (*servers, groups)), default=0)
    ready = min((status.get("readyReplicas", 0) for status in servers), default=0)
    if not all(statuses[role].get("readyReplicas", 0) for role in separate):
        ready = 0
    return total, max(ready, groups.get("readyReplicas", 0))


def _outdated_programs(context: Context) -> tuple[Ref, ...]:
    """ConfigMaps with programs of earlier releases that nothing mounts any more.

    While a pod of an earlier release exists, its ReplicaSet may replace it by a pod from the same
    template. So the ConfigMap that the pod mounts stays.
    """
    keep = {programs.name(context.model), *_mounted(context.observed)}
    return tuple(
        Ref("v1", "ConfigMap", name)
        for name, item in sorted(context.observed.config_maps.items())
        if item["metadata"].get("labels", {}).get(names.COMPONENT) == programs.COMPONENT
        and name not in keep
    )


def _mounted(observed: Observed) -> set[str]:
    """Names of the ConfigMaps that the live workload or a live pod mounts."""
    specs = [pod.get("spec", {}) for pod in observed.pods]
    specs += [live["spec"]["template"]["spec"] for live in observed.deployments.values()]
    if observed.group is not None:
        specs.append(observed.group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"])
    return {name for spec in specs for name in programs.config_map_names(spec)}


def _deployments(observed: Observed) -> tuple[Ref, ...]:
    live = observed.deployments.values()
    return tuple(Ref("apps/v1", "Deployment", item["metadata"]["name"]) for item in live)


def _group(context: Context) -> tuple[Ref, ...]:
    """What to delete of a group: first the LeaderWorkerSet, then its ConfigMap.

    For a spec without groups, `observe` reads the LeaderWorkerSet only while the ConfigMap exists.
    """
    name = names.group_name(context.model)
    if context.observed.group is not None:
        return (Ref(names.GROUP_API, names.GROUP_KIND, name),)
    return (Ref("v1", "ConfigMap", name),) if name in context.observed.config_maps else ()
