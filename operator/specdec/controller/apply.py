"""Carry out a decision: apply what is missing or has drifted, delete what it names.

`Reconciler` calls `apply_decision` after each decision. It sends no write for a child that already
is as desired, never touches an object that was not created for the resource, and deletes only
objects that it has observed.
"""

import secrets
from dataclasses import dataclass

from specdec.api import names
from specdec.api.conditions import OPTIONAL
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.cluster import Cluster, Conflict, Missing, Rejected
from specdec.controller.children import (
    field_manager,
    labels_and_owners,
    live_object,
    log_change,
)
from specdec.controller.drift import covers, with_hash
from specdec.controller.observe import belongs_to
from specdec.controller.orphans import adopt_orphans
from specdec.controller.refusals import (
    RefusedError,
    missing_kind_or_namespace,
    rejection,
    require_ownership,
)
from specdec.controller.spec_replacement import apply_or_replace_spec
from specdec.desired import measurement
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Object, Observed, Ref

# The fields of a spec whose change replaces pods.
_POD_TEMPLATE_FIELDS = ("template", "leaderWorkerTemplate")

# `observe` reads these by their names, and the decision depends on what it has read.
_READ_BY_NAME = frozenset({"PersistentVolumeClaim", "Deployment", names.GROUP_KIND})


@dataclass(frozen=True)
class Applied:
    """The result of applying a decision.

    Attributes:
        refusals: refusals after which the other objects were still applied. They concern children
            whose condition is in `OPTIONAL`, and changes to a child that exists.
        replaced_pods: the children that replace their pods from now on, such as `Deployment pair`.
    """

    refusals: tuple[RefusedError, ...] = ()
    replaced_pods: tuple[str, ...] = ()


async def apply_decision(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, decision: Decision
) -> Applied:
    """Apply in order, then delete, then adopt orphans; leaves `delete_last` to the caller.

    Raises:
        RefusedError: the API server refuses a new child, or an object of its name is not ours.
        DefinitionNotReadyError: part of the API server does not know the definition yet.
        ClusterError: another request failed.
    """
    refusals: list[RefusedError] = []
    replaced_pods: list[str] = []
    for intent in decision.apply:
        if replaced_pods and _measures(intent):
            # The decision saw the service before its pods were replaced. The Job would measure
            # the old pods, or old and new ones; it starts once the new ones are available.
            continue
        try:
            if await _apply_or_refuse(cluster, model, observed, intent):
                replaced_pods.append(f"{intent['kind']} {intent['metadata']['name']}")
        except RefusedError as error:
            if error.condition_type not in OPTIONAL and not error.others_can_follow:
                await _rescale(cluster, model, observed, decision)
                raise
            refusals.append(error)
    for ref in decision.delete:
        await delete_child(cluster, model, observed, ref)
    await adopt_orphans(cluster, model, observed, decision)
    return Applied(tuple(refusals), tuple(replaced_pods))


def _measures(intent: Object) -> bool:
    """Whether an object is a Job that measures the service."""
    component = intent["metadata"].get("labels", {}).get(names.COMPONENT)
    return intent["kind"] == "Job" and component in (measurement.VERIFY, measurement.BENCHMARK)


async def _rescale(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, decision: Decision
) -> None:
    """Scale and suspend although an earlier object of the decision was refused."""
    for intent in decision.rescale:
        await _apply_or_refuse(cluster, model, observed, intent)
    if model.spec.suspend:
        for ref in decision.delete:
            if ref.kind == "Job":
                await delete_child(cluster, model, observed, ref)


async def _apply_or_refuse(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, intent: Object
) -> bool:
    """Call `apply_child`; a rejection by the API server becomes a RefusedError."""
    try:
        return await apply_child(cluster, model, observed, intent)
    except Missing as error:
        raise await missing_kind_or_namespace(cluster, intent, error) from error
    except Rejected as error:
        live = live_object(observed, intent["kind"], intent["metadata"]["name"])
        raise rejection(intent, live, error) from error


async def apply_child(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, intent: Object
) -> bool:
    """Bring one child to its desired state; send no write if the child already has that state.

    Returns:
        Whether the child existed and replaces its pods now.
    """
    meta, kind = intent["metadata"], intent["kind"]
    if kind == "Secret":
        await _require_resource(cluster, model)
        await _create_key(cluster, model, intent)
        return False
    desired, manager = with_hash(intent), field_manager(model, intent)
    live = live_object(observed, kind, meta["name"])
    if live is None:
        live = await _create(cluster, model, desired, manager)
        if live is None:
            return False
    require_ownership(model, live, intent)
    if kind == "Job":
        # A Job's spec is immutable, so only labels and owners are applied. They need another
        # field manager: under the usual one, an apply without the spec would remove the spec.
        desired, manager = labels_and_owners(intent), f"{manager}-membership"
    if covers(live, desired):
        return False
    applied = await apply_or_replace_spec(cluster, live, desired, manager)
    log_change(model, "changed %s %s", kind, meta["name"])
    return any(
        live.get("spec", {}).get(field) != applied.get("spec", {}).get(field)
        for field in _POD_TEMPLATE_FIELDS
    )


async def _create(
    cluster: Cluster, model: SpeculativeModel, desired: Object, manager: str
) -> Object | None:
    """Create a child; returns the object that already has its name, if any.

    Most kinds are observed by their labels. An object of this name may exist without our labels,
    or another resource may have created the shared object since.
    """
    kind, meta = desired["kind"], desired["metadata"]
    # Without a spec, the intent only adds this resource to the owners of a shared Job.
    joins = kind == "Job" and "spec" not in desired
    if not joins:
        await _require_resource(cluster, model)
        if await cluster.create(desired, manager):
            log_change(model, "created %s %s", kind, meta["name"])
            return None
    live = await cluster.find(desired["apiVersion"], kind, meta["namespace"], meta["name"])
    if live is None:
        raise Conflict(f"{kind} {meta['name']} was deleted since it was read")
    if kind in _READ_BY_NAME and belongs_to(live, model):
        raise Conflict(f"{kind} {meta['name']} was created since it was read")
    return live


async def _require_resource(cluster: Cluster, model: SpeculativeModel) -> None:
    """Raise Conflict if the resource was deleted since the reconcile has read it.

    A reconcile takes seconds. The garbage collector deletes a child without an owner, but until
    then a Job could run and write to a volume.
    """
    meta = model.metadata
    body = await cluster.get(API_VERSION, KIND, meta.namespace, meta.name)
    live = body["metadata"] if body else {}
    if live.get("uid") != meta.uid or live.get("deletionTimestamp"):
        raise Conflict(f"{KIND} {meta.name} was deleted since it was read")


async def _create_key(cluster: Cluster, model: SpeculativeModel, intent: Object) -> None:
    """Create a Secret with a random key unless it exists; the operator never reads it."""
    if await cluster.create({**intent, "stringData": {"key": secrets.token_hex(32)}}):
        log_change(model, "created %s %s", "Secret", intent["metadata"]["name"])


async def delete_child(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, ref: Ref
) -> None:
    """Delete one child in its observed version; skip it if not observed or already deleting."""
    live = live_object(observed, ref.kind, ref.name)
    if live is None or live["metadata"].get("deletionTimestamp"):
        return
    if await cluster.delete({"apiVersion": ref.api_version, "kind": ref.kind, **live}):
        log_change(model, "deleted %s %s", ref.kind, ref.name)
