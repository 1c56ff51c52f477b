"""What carries the serving pods: a Deployment for each server, or groups of pods on nodes.

Where the spec changes from one to the other, the old pods serve until the new ones are ready.
"""

from dataclasses import replace

from specdec import backends
from specdec.api import names
from specdec.api.conditions import Condition
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.pipeline import group, serving
from specdec.pipeline.observed import Object, Observed, Ref
from specdec.pipeline.stage import Context, Outcome


def workload(context: Context) -> Outcome:
    """Want what the spec asks for, and take the other away once that serves."""
    (first, *_) = backends.served(context.model, context.facts)
    grouped = bool(first.launch.slots)
    outcome = group.serving(context, first) if grouped else serving.serving(context)
    answers = any(c.status == "True" for c in outcome.conditions)
    outcome = replace(outcome, facts=replace(outcome.facts, available=answers))
    if outcome.requeue_after is not None:
        return outcome
    other = _deployments(context.observed) if grouped else _group(context)
    return replace(outcome, delete=outcome.delete + other)


def live(observed: Observed) -> bool:
    """Whether anything of the resource serves, or is about to."""
    return bool(observed.deployments) or observed.group is not None


def available(context: Context) -> Condition:
    """Judge what is live while an earlier stage is not done yet."""
    observed = context.observed
    grouped = context.model.spec.serving.nodes_per_replica > 1 or not observed.deployments
    if observed.group is not None and grouped:
        return group.available(context, None)
    return serving.available(context, None)


def held(context: Context, volume: Volume) -> tuple[Object, ...]:
    """What is live with other replicas: scaling and suspending do not wait for a build."""
    return serving.held(context, volume) + group.held(context, volume)


def live_revisions(observed: Observed) -> list[Revision]:
    """What everything live is set to serve."""
    grouped = group.live_revision(observed)
    return [*serving.live_revisions(observed).values(), *([grouped] if grouped else [])]


def counts(observed: Observed) -> tuple[int, int]:
    """How many replicas of the service there are, and how many of them answer.

    A replica is one pod of each server, or one group; while the one takes over from the other,
    either answers.
    """
    servers = [item.get("status", {}) for item in observed.deployments.values()]
    groups = (observed.group or {}).get("status", {})
    total = max((found.get("replicas", 0) for found in (*servers, groups)), default=0)
    paired = min((found.get("readyReplicas", 0) for found in servers), default=0)
    return total, max(paired, groups.get("readyReplicas", 0))


def _deployments(observed: Observed) -> tuple[Ref, ...]:
    live = observed.deployments.values()
    return tuple(Ref("apps/v1", "Deployment", item["metadata"]["name"]) for item in live)


def _group(context: Context) -> tuple[Ref, ...]:
    """The groups, and once they are gone the program by which they are known to have been."""
    name = names.group_name(context.model)
    if context.observed.group is not None:
        return (Ref(names.GROUP_API, names.GROUP_KIND, name),)
    return (Ref("v1", "ConfigMap", name),) if name in context.observed.config_maps else ()
