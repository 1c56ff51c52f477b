"""Available for a service of single pods: a Deployment for each server."""

from collections.abc import Sequence
from dataclasses import replace

from specdec import backends
from specdec.api import names
from specdec.api.conditions import Condition
from specdec.desired import rescaled
from specdec.desired import serving as desired
from specdec.desired.serving import Revision
from specdec.pipeline.observed import Object, Observed, Ref
from specdec.pipeline.pods import certificate_rotation, diagnosis, readiness
from specdec.pipeline.pods.readiness import Served, Server
from specdec.pipeline.stage import POLL, Context, Outcome


def serving(context: Context) -> Outcome:
    """Roll the Deployments to the desired revision, within the bounds of `desired.strategy`."""
    model, live = context.model, served(context.observed)
    revisions = [
        replace(
            revision,
            certificate=certificate_rotation.newest(
                context.observed, revision.role, live.get(revision.role)
            ),
            operator_image=context.images.operator,
            checkpoint=context.facts.checkpoints["target"].path,
        )
        for revision in backends.desired_revisions(model, context.facts)
    ]
    deployments = [
        desired.deployment(model, revision, context.facts.volume, model.replicas(revision.role))
        for revision in revisions
    ]
    condition = available(context, revisions)
    settled = readiness.is_final(condition)
    return Outcome(
        (condition,),
        context.facts,
        proceed=True,
        apply=tuple(deployments),
        delete=_superfluous(context, revisions) if settled else (),
        requeue_after=None if settled else POLL,
    )


def rescale(context: Context) -> tuple[Object, ...]:
    """Live Deployments with the desired replicas and certificate: neither waits for builds."""
    model, observed = context.model, context.observed
    changed = []
    for role, live in served(observed).items():
        certificate, replicas = live.certificate, model.replicas(role)
        if model.spec.serving.tls:
            certificate = certificate_rotation.newest(observed, role, live)
        body = observed.deployments[role]
        if certificate != live.certificate or body["spec"].get("replicas") != replicas:
            changed.append(rescaled.deployment(model, role, body, replicas, certificate))
    return tuple(changed)


def served(observed: Observed) -> dict[str, Served]:
    """What the live Deployments serve, by role."""
    return {
        role: readiness.served(live, live["spec"]["template"])
        for role, live in observed.deployments.items()
    }


def available(context: Context, revisions: Sequence[Revision] | None) -> Condition:
    """Judge the live Deployments; `revisions` is None while an earlier stage is not done."""
    if condition := readiness.without_pods(context):
        return condition
    desired_ = {revision.role: revision for revision in revisions or ()}
    roles = tuple(desired_) or tuple(context.observed.deployments)
    judged = [
        readiness.judge(context, _server(context, role, len(roles)), desired_.get(role))
        for role in roles
    ]
    return readiness.worst(judged)


def _server(context: Context, role: str, servers: int) -> Server:
    title = f"Deployment {names.server_name(context.model, role)}"
    live = context.observed.deployments.get(role)
    if live is None:
        return Server(title, role, None)
    pods = [
        pod
        for pod in context.observed.serving_pods(role)
        if not pod["metadata"].get("deletionTimestamp")
    ]
    return Server(
        title,
        role,
        readiness.served(live, live["spec"]["template"]),
        pods,
        complete=_complete(context, role, live),
        ready=live.get("status", {}).get("readyReplicas", 0),
        detail=f" of the {role}" if servers > 1 else "",
        problem=diagnosis.stuck_rollout(live),
    )


def _complete(context: Context, role: str, deployment: Object) -> bool:
    """Whether no pod of another revision is left and enough pods are ready.

    A change of an annotation increases a Deployment's generation too. Until the Deployment's
    controller has observed the generation, the counts in the status are old. With old counts, an
    unavailable service does not become available, and an available one stays available if the old
    counts are sufficient. A new pod template ends the availability: `controller.apply` detects
    that, and `adjustments.with_replaced_pods` reports it.
    """
    model, status = context.model, deployment.get("status", {})
    old = status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0)
    if old and not model.available:
        return False
    updated, ready, total = (
        status.get(k, 0) for k in ("updatedReplicas", "readyReplicas", "replicas")
    )
    replicas = model.replicas(role)
    # If a server has a number of replicas of its own, no autoscaler changes it.
    enough = model.spec.serving.enough_replicas if model.own_replicas(role) is None else replicas
    if enough == replicas:
        return bool(updated == ready == total == replicas)
    return bool(updated == total and ready >= enough)


def _superfluous(context: Context, revisions: Sequence[Revision]) -> tuple[Ref, ...]:
    """Deployments of servers that the topology no longer has, deleted once the others serve."""
    roles = {revision.role for revision in revisions}
    return tuple(
        Ref("apps/v1", "Deployment", live["metadata"]["name"])
        for role, live in context.observed.deployments.items()
        if role not in roles
    )
