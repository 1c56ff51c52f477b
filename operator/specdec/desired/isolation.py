"""NetworkPolicies of the Jobs of a resource, where the resource enables policies.

Jobs accept no connections. A fetch Job may reach public addresses. Measuring Jobs may reach the
servers. Build, publish and prune Jobs may reach nothing: the node mounts their volume.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.api.networks import LINK_LOCAL, PRIVATE
from specdec.desired.child import given, metadata
from specdec.desired.measurement import BENCHMARK, VERIFY
from specdec.desired.policy import servers
from specdec.desired.prune import COMPONENT

_KIND = "NetworkPolicy"
# The Jobs that a policy selects, as the last part of its name.
_JOBS = ("fetch", "build", "measure")
_EVERYTHING = ("0.0.0.0/0", "::/0")
# DNS to any address: a cluster's name server may be a pod, or an address of the node.
_DNS = {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]}


def policy_names(model: SpeculativeModel) -> tuple[str, ...]:
    """The names of the policies of a resource's Jobs; empty if it disables policies."""
    if model.spec.networking.network_policy.mode == "Disabled":
        return ()
    return possible_names(model)


def possible_names(model: SpeculativeModel) -> tuple[str, ...]:
    """The names that the policies of a resource's Jobs have where it does not disable policies."""
    return tuple(f"{model.metadata.name}-{jobs}" for jobs in _JOBS)


def objects(model: SpeculativeModel, networks: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """The policies of a resource's Jobs; fetch Jobs may also reach `networks` (CIDR)."""
    if not policy_names(model):
        return ()
    own = {names.MODEL: model.metadata.name, names.MANAGED_BY: names.MANAGER}
    # All resources on the claim share a build, so its pods have no label of a single resource.
    claim = names.claim_label(names.claim_name(model))
    shared = {names.CLAIM: claim, names.MANAGED_BY: names.MANAGER}
    measured = [{"podSelector": servers(model)}, *_baseline(model)]
    to_servers = {"to": measured}
    return (
        _policy(model, "fetch", own, ["fetch"], [_DNS, {"to": _outside(networks)}]),
        _policy(model, "build", shared, ["engine", "publish", COMPONENT], []),
        _policy(model, "measure", own, [VERIFY, BENCHMARK], [_DNS, to_servers]),
    )


def _policy(
    model: SpeculativeModel,
    suffix: str,
    labels: Mapping[str, str],
    components: Iterable[str],
    egress: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    members = {"key": names.COMPONENT, "operator": "In", "values": list(components)}
    return {
        "apiVersion": OPTIONAL_KINDS[_KIND].version,
        "kind": _KIND,
        "metadata": metadata(model, f"{model.metadata.name}-{suffix}", "policy"),
        "spec": {
            "podSelector": {"matchLabels": dict(labels), "matchExpressions": [members]},
            # A type without rules denies all connections of that direction.
            "policyTypes": ["Ingress", "Egress"],
            **given(egress=[dict(rule) for rule in egress]),
        },
    }


def _baseline(model: SpeculativeModel) -> list[dict[str, Any]]:
    """The pods of the resource that a benchmark compares with."""
    own = model.spec.benchmark
    if own.mode == "Disabled" or own.baseline_name is None:
        return []
    pods = servers(model)
    labels = {**pods["matchLabels"], names.INSTANCE: own.baseline_name}
    return [{"podSelector": {**pods, "matchLabels": labels}}]


def _outside(networks: Sequence[str]) -> list[dict[str, Any]]:
    """Everything except private and link-local ranges, plus `networks`."""
    closed = [*LINK_LOCAL, *PRIVATE]
    blocks: list[dict[str, Any]] = [
        {
            "cidr": cidr,
            "except": [
                str(network) for network in closed if (":" in cidr) == (network.version == 6)
            ],
        }
        for cidr in _EVERYTHING
    ]
    return [{"ipBlock": block} for block in [*blocks, *({"cidr": cidr} for cidr in networks)]]
