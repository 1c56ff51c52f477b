"""Classify the errors of applying a child: which condition reports them, and with what advice.

`apply` raises these errors and `Reconciler` turns them into conditions. A refusal lasts until a
person changes a quota, a policy, the cluster or the resource.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.conditions import Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AvailableReason, CommonReason, Reason, RouteReason, ScalingReason
from specdec.cluster import Cluster, Missing, Rejected, Transient
from specdec.controller.drift import shared
from specdec.controller.observe import belongs_to
from specdec.pipeline.observed import Object

# The condition that reports on a child, by the child's component label.
_CONDITION_TYPES = {
    "storage": Type.STORAGE_READY,
    "fetch": Type.MODELS_FETCHED,
    "engine": Type.ENGINES_READY,
    "publish": Type.REPOSITORY_READY,
    **dict.fromkeys(names.SERVERS.values(), Type.AVAILABLE),
    **dict.fromkeys(("programs", "network", "disruption", "policy"), Type.AVAILABLE),
    "verify": Type.SPECULATION_ACTIVE,
    "benchmark": Type.BENCHMARK_COMPLETED,
    "scaling": Type.SCALING_READY,
    "route": Type.ROUTE_READY,
    "prune": Type.VOLUME_PRUNED,
}
# Kinds that a cluster may lack: the reason, and a message with the fix.
_MISSING_KINDS = {
    names.GROUP_KIND: (
        AvailableReason.LEADER_WORKER_SET_MISSING,
        "spec.serving.nodesPerReplica is above 1, and the cluster has no {}: install the "
        "LeaderWorkerSet controller (https://lws.sigs.k8s.io), or set it to 1",
    ),
    "ScaledObject": (
        ScalingReason.KEDA_MISSING,
        "spec.serving.scaling.driver is KEDA, and the cluster has no {}: install KEDA "
        "(https://keda.sh), or set the driver to HPA",
    ),
    "HTTPRoute": (
        RouteReason.GATEWAY_API_MISSING,
        "spec.networking.gateway is set, and the cluster has no {}: install the Gateway API "
        "(https://gateway-api.sigs.k8s.io), or use spec.networking.ingress",
    ),
}
# Admission plugins that check owner references refresh their list of kinds only twice a minute.
# Until then they refuse the children of a new resource definition with this message.
_UNKNOWN_OWNER_KIND = "cannot find RESTMapping"
# The plugin OwnerReferencesPermissionEnforcement, about an object that the account may not delete.
_OWNER_REFUSED = "cannot set an ownerRef on a resource you can't delete"
_MISSING_RIGHT = re.compile(r'is forbidden: User ".*" cannot [a-z]+ resource "')
MORE_RIGHTS = "apply manifests/install/rbac.yaml or upgrade the chart"

_CLAIM = "PersistentVolumeClaim"
_ADVICE = "rename the resource or delete that"


class DefinitionNotReadyError(Transient):
    """A part of the API server does not know our resource definition yet.

    That part reads the definition within half a minute.
    """


class RefusedError(Exception):
    """A child cannot be applied: the API server refuses it, or its name belongs to another object.

    Attributes:
        condition_type: the condition that reports it.
        reason: that condition's reason.
        others_can_follow: the child exists unchanged, and the objects after it can be applied.
            Never true of a ConfigMap: its Job must not run with the old content.
    """

    def __init__(
        self,
        condition_type: Type,
        message: str,
        reason: Reason = CommonReason.REJECTED,
        *,
        others_can_follow: bool = False,
    ) -> None:
        super().__init__(message)
        self.condition_type = condition_type
        self.reason = reason
        self.others_can_follow = others_can_follow


def condition_type_of(intent: Mapping[str, Any]) -> Type:
    """The condition that reports on a child."""
    component = intent["metadata"].get("labels", {}).get(names.COMPONENT, "")
    return _CONDITION_TYPES.get(component, Type.ACCEPTED)


def rejection(intent: Object, live: Object | None, error: Rejected) -> Exception:
    """The error to raise when the API server rejects a child; `live` is the child as observed."""
    if _UNKNOWN_OWNER_KIND in error.message:
        return DefinitionNotReadyError(str(error))
    message = str(error)
    if _MISSING_RIGHT.search(message):
        message += f": {MORE_RIGHTS}"
    if _OWNER_REFUSED in message and intent["kind"] == _CLAIM:
        message += f": {_without_owner(intent)}"
    others_can_follow = live is not None and intent["kind"] != "ConfigMap"
    return RefusedError(condition_type_of(intent), message, others_can_follow=others_can_follow)


def _without_owner(claim: Object) -> str:
    """How to give a claim its owner back, which the operator may not do."""
    meta = claim["metadata"]
    owners = {"metadata": {"ownerReferences": meta["ownerReferences"]}}
    return (
        f"claim {meta['name']} has lost its owner, and Kubernetes would keep it when the resource "
        "is deleted; the operator may not set the owner, because it may not delete claims: "
        f"kubectl -n {meta['namespace']} patch pvc {meta['name']} --type=merge -p "
        f"'{json.dumps(owners, separators=(',', ':'))}'"
    )


async def missing_kind_or_namespace(
    cluster: Cluster, intent: Object, error: Missing
) -> RefusedError:
    """The error to raise on 404: the child's kind or its namespace does not exist."""
    kind, version = intent["kind"], intent["apiVersion"]
    if kind not in _MISSING_KINDS or await cluster.serves(version, kind):
        return RefusedError(condition_type_of(intent), str(error))
    reason, message = _MISSING_KINDS[kind]
    return RefusedError(condition_type_of(intent), message.format(f"{kind} ({version})"), reason)


def require_ownership(model: SpeculativeModel, live: Object, intent: Object) -> None:
    """Raise RefusedError if an object of that name exists and was not created for the resource."""
    labels = live["metadata"].get("labels", {})
    joinable = shared(intent) and labels.get(names.MANAGED_BY) == names.MANAGER
    if joinable or belongs_to(live, model):
        return
    kind, name = intent["kind"], intent["metadata"]["name"]
    raise RefusedError(
        condition_type_of(intent),
        f"{kind} {name} exists and was not made for SpeculativeModel {model.metadata.name}: "
        + (_claim_advice(model, name) if kind == _CLAIM else f"{_ADVICE} {kind}"),
    )


def _claim_advice(model: SpeculativeModel, name: str) -> str:
    """How to keep a claim with its files, which is ours without its labels and owner."""
    meta = model.metadata
    labels = f"{names.MANAGED_BY}={names.MANAGER} {names.MODEL}={meta.name}"
    return (
        f"if it lost its labels, restore them: kubectl -n {meta.namespace} label --overwrite pvc "
        f"{name} {labels}; otherwise rename the resource, or name the claim in "
        "spec.storage.existingClaim"
    )
