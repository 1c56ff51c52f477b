"""Carry out a decision: apply what is missing or changed, delete what is named, leave the rest."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.api.conditions import OPTIONAL, Type
from specdec.api.model import KIND, SpeculativeModel
from specdec.cluster import Cluster, Conflict, Missing, Rejected, Transient
from specdec.controller import restore
from specdec.controller.drift import covers, marked, shared
from specdec.controller.observe import belongs
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Object, Observed, Ref

logger = logging.getLogger(__name__)

# Which condition speaks of a child, by its component label.
_STAGES = {
    "storage": Type.STORAGE_READY,
    "fetch": Type.MODELS_FETCHED,
    "engine": Type.ENGINES_READY,
    "publish": Type.REPOSITORY_READY,
    **dict.fromkeys(names.SERVERS.values(), Type.AVAILABLE),
    **dict.fromkeys(("network", "disruption", "policy"), Type.AVAILABLE),
    "verify": Type.SPECULATION_ACTIVE,
    "benchmark": Type.BENCHMARK_COMPLETED,
    "scaling": Type.SCALING_READY,
    "route": Type.ROUTE_READY,
}
# Kinds that need not be installed: the reason, and what to do about it.
_NOT_INSTALLED = {
    names.GROUP_KIND: (
        "LeaderWorkerSetMissing",
        "spec.serving.nodesPerReplica is above 1, and the cluster has no {}: install the "
        "LeaderWorkerSet controller (https://lws.sigs.k8s.io), or set it to 1",
    ),
    "ScaledObject": (
        "KedaMissing",
        "spec.serving.scaling.driver is KEDA, and the cluster has no {}: install KEDA "
        "(https://keda.sh), or set the driver to HPA",
    ),
    "HTTPRoute": (
        "GatewayApiMissing",
        "spec.networking.gateway is set, and the cluster has no {}: install the Gateway API "
        "(https://gateway-api.sigs.k8s.io), or use spec.networking.ingress",
    ),
}

# What of a spec pods are made of.
_TEMPLATES = ("template", "leaderWorkerTemplate")

# Admission that checks owner references looks at the definitions twice a minute only, and refuses
# the children of a definition that it has not seen yet.
_NOT_SEEN_YET = "cannot find RESTMapping"


class EarlyError(Transient):
    """The API server does not know our definition everywhere yet; it will within half a minute."""


class RefusedError(Exception):
    """A child could not be written; `stage` is the condition it belongs to, `reason` its own.

    `stands` says that the child exists as it was, so that the objects behind it can be applied.
    """

    def __init__(
        self, stage: Type, words: str, reason: str = "Rejected", *, stands: bool = False
    ) -> None:
        super().__init__(words)
        self.stage = stage
        self.reason = reason
        self.stands = stands


@dataclass(frozen=True)
class Acted:
    """What became of a decision.

    Attributes:
        refusals: those that stopped nothing behind them: of what the service does without, and of
            a child that exists and stays as it was.
        rolling: what replaces its pods from now on, such as `Deployment pair`.
    """

    refusals: tuple[RefusedError, ...] = ()
    rolling: tuple[str, ...] = ()


async def act(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, decision: Decision
) -> Acted:
    """Apply in order, then delete.

    Raises:
        RefusedError: the server refuses a new child, or an object of that name is not ours.
        EarlyError: the definition is too young for the server to take children of it.
        ClusterError: anything else that went wrong with a request.
    """
    refusals: list[RefusedError] = []
    rolling: list[str] = []
    for intent in decision.apply:
        try:
            if await _accepted(cluster, model, observed, intent):
                rolling.append(f"{intent['kind']} {intent['metadata']['name']}")
        except RefusedError as error:
            if error.stage not in OPTIONAL and not error.stands:
                raise
            refusals.append(error)
    for ref in decision.delete:
        await remove(cluster, model, observed, ref)
    for orphan in orphans(model, observed, decision):
        await _adopt(cluster, model, orphan)
    return Acted(tuple(refusals), tuple(rolling))


async def _accepted(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, intent: Object
) -> bool:
    """Ensure one child, as `ensure`; whatever refuses it, in the message of its condition."""
    try:
        return await ensure(cluster, model, observed, intent)
    except Missing as error:
        raise await _missing(cluster, intent, error) from error
    except Rejected as error:
        if _NOT_SEEN_YET in error.words:
            raise EarlyError(str(error)) from error
        live = find(observed, intent["kind"], intent["metadata"]["name"])
        # What lies behind a ConfigMap reads it: an old one does not do its job.
        stands = live is not None and intent["kind"] != "ConfigMap"
        raise RefusedError(stage_of(intent), str(error), stands=stands) from error


async def ensure(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, intent: Object
) -> bool:
    """Make one child what it should be; no request writes when it is that already.

    Returns whether it had pods that it replaces now.
    """
    meta, kind = intent["metadata"], intent["kind"]
    if kind == "Secret":
        await _draw(cluster, model, intent)
        return False
    live = find(observed, kind, meta["name"])
    if live is None:
        # Labels find what is ours. Before creating, look for a namesake that is not, or that
        # another resource made for both of us.
        live = await cluster.get(intent["apiVersion"], kind, meta["namespace"], meta["name"])
    wanted, manager = marked(intent), manager_of(model, intent)
    if live is not None:
        refuse_foreign(model, live, intent)
        if kind == "Job":
            # A Job's template never changes, so only its belonging to us is applied; under a
            # manager of its own, since leaving out the spec would otherwise take it away.
            wanted, manager = membership(intent), f"{manager}-membership"
        if covers(live, wanted):
            return False
    elif "spec" not in intent and kind == "Job":
        raise Conflict(f"Job {meta['name']} was to be shared and is gone")
    applied = await restore.apply(cluster, live, wanted, manager)
    verb = "created" if live is None else "changed"
    log(model, "%s %s %s", verb, kind, meta["name"])
    return live is not None and any(
        live.get("spec", {}).get(key) != applied.get("spec", {}).get(key) for key in _TEMPLATES
    )


async def _draw(cluster: Cluster, model: SpeculativeModel, intent: Object) -> None:
    """Create a Secret with a key that nobody knows, unless there is one; it is never read."""
    if await cluster.create({**intent, "stringData": {"key": secrets.token_hex(32)}}):
        log(model, "created %s %s", "Secret", intent["metadata"]["name"])


async def _missing(cluster: Cluster, intent: Object, error: Missing) -> RefusedError:
    """Why a child has no place: its kind is not installed, or its namespace is gone."""
    kind, version = intent["kind"], intent["apiVersion"]
    if kind not in _NOT_INSTALLED or await cluster.serves(version, kind):
        return RefusedError(stage_of(intent), str(error))
    reason, words = _NOT_INSTALLED[kind]
    return RefusedError(stage_of(intent), words.format(f"{kind} ({version})"), reason)


async def remove(cluster: Cluster, model: SpeculativeModel, observed: Observed, ref: Ref) -> None:
    """Delete one child as it was seen; what was not seen, or is on its way out, is left alone."""
    live = find(observed, ref.kind, ref.name)
    if live is None or live["metadata"].get("deletionTimestamp"):
        return
    if await cluster.delete({"apiVersion": ref.api_version, "kind": ref.kind, **live}):
        log(model, "deleted %s %s", ref.kind, ref.name)


def find(observed: Observed, kind: str, name: str) -> Object | None:
    """The live object of a kind and name in the snapshot."""
    if kind == "PersistentVolumeClaim":
        live = observed.claim
        return live if live is not None and live["metadata"]["name"] == name else None
    if kind == names.GROUP_KIND:
        return observed.group
    many = {
        "Deployment": {d["metadata"]["name"]: d for d in observed.deployments.values()},
        "Job": observed.jobs,
        "ConfigMap": observed.config_maps,
        "Service": observed.services,
    }
    return many.get(kind, {}).get(name) or observed.extras.get((kind, name))


def membership(intent: Object) -> dict[str, Any]:
    """What makes an existing Job ours: identity, labels and owner.

    Labels that a resource gives its Jobs are for those who queue them, when they are made: sharers
    of one Job would take them from each other.
    """
    meta = intent["metadata"]
    kept = {k: meta[k] for k in ("name", "namespace", "labels", "ownerReferences") if k in meta}
    kept["labels"] = {k: v for k, v in meta.get("labels", {}).items() if names.ours(k)}
    return {"apiVersion": intent["apiVersion"], "kind": intent["kind"], "metadata": kept}


def orphans(model: SpeculativeModel, observed: Observed, decision: Decision) -> list[Object]:
    """Jobs and ConfigMaps that lost their owner and that no stage applies any more.

    Nothing would delete them with the resource. An owner of the resource's name and another uid
    is its predecessor, whose children the API server is about to delete.
    """
    handled = {(one["kind"], one["metadata"]["name"]) for one in decision.apply}
    handled |= {(ref.kind, ref.name) for ref in decision.delete}
    return [
        live
        for live in (*observed.jobs.values(), *observed.config_maps.values())
        if (live["kind"], live["metadata"]["name"]) not in handled
        and not live["metadata"].get("deletionTimestamp")
        and not any(
            owner["kind"] == KIND and owner["name"] == model.metadata.name
            for owner in live["metadata"].get("ownerReferences", [])
        )
    ]


async def _adopt(cluster: Cluster, model: SpeculativeModel, live: Object) -> None:
    """Set the owner again; a refusal costs nobody anything but a leftover."""
    # With its uid: what somebody deletes meanwhile must not be made anew, and empty.
    meta = {key: live["metadata"][key] for key in ("name", "namespace", "uid")}
    meta["ownerReferences"] = names.owned_by(model)
    intent = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta}
    try:
        await cluster.apply(intent, f"{manager_of(model, live)}-membership")
    except Rejected as error:
        logger.warning("%s stays without an owner: %s", meta["name"], error)
        return
    log(model, "changed %s %s", live["kind"], meta["name"])


def manager_of(model: SpeculativeModel, intent: Object) -> str:
    """The field manager: one per sharer on shared objects, so that their intents add up."""
    return f"{names.MANAGER}-{model.metadata.name}" if shared(intent) else names.MANAGER


def refuse_foreign(model: SpeculativeModel, live: Object, intent: Object) -> None:
    """Raise RefusedError when an object of that name exists and is not of this operator."""
    labels = live["metadata"].get("labels", {})
    joinable = shared(intent) and labels.get(names.MANAGED_BY) == names.MANAGER
    if joinable or belongs(live, model):
        return
    kind, name = intent["kind"], intent["metadata"]["name"]
    raise RefusedError(
        stage_of(intent),
        f"{kind} {name} exists and was not made for SpeculativeModel {model.metadata.name}: "
        f"rename the resource or delete that {kind}",
    )


def stage_of(intent: Mapping[str, Any]) -> Type:
    """The condition that speaks of a child."""
    component = intent["metadata"].get("labels", {}).get(names.COMPONENT, "")
    return _STAGES.get(component, Type.ACCEPTED)


def log(model: SpeculativeModel, message: str, *values: str) -> None:
    """One line per effective change, with the resource it was made for."""
    meta = model.metadata
    logger.info(message, *values, extra={"resource": f"{meta.namespace}/{meta.name}"})
