"""The NetworkPolicy of serving pods: which clients may reach them."""

from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata
from specdec.servers.kind import Serving, of

_KIND = "NetworkPolicy"


def kind(model: SpeculativeModel) -> str | None:
    """The kind of the policy; None where the resource asks for none."""
    return None if model.spec.networking.network_policy.mode == "Disabled" else _KIND


def objects(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """One policy for all serving pods of a resource that asks for it.

    It restricts ingress only: pods still reach their volume, and whatever a server's plugins call.
    The node of a pod always reaches it, so probes and `kubectl port-forward` still work.
    """
    policy, name = model.spec.networking.network_policy, model.metadata.name
    server = of(model).serving
    ports = server.clients(takes_http=model.spec.serving.takes_http)
    if kind(model) is None:
        return ()
    pods = servers(model)
    clients = [{"podSelector": {}}, *(dict(peer) for peer in policy.from_)]
    ingress: list[dict[str, Any]] = [
        # An HTTP port that only reports health is left out: its probes run inside the pod.
        {
            "from": clients,
            "ports": [
                *_ports(server, *ports),
                *_openai(model),
            ],
        },
        # A scraper usually runs in another namespace, and counters are not secret.
        {"ports": _ports(server, server.metrics)},
    ]
    if model.spec.serving.nodes_per_replica > 1:
        # MPI uses random ports.
        ingress.append({"from": [{"podSelector": pods}]})
    body = {
        "apiVersion": OPTIONAL_KINDS[_KIND].version,
        "kind": _KIND,
        "metadata": metadata(model, name, "policy"),
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress},
    }
    return (body,)


def servers(model: SpeculativeModel) -> dict[str, Any]:
    """The pod selector of all serving pods of a resource."""
    labels = names.selector(model)
    del labels[names.COMPONENT]
    components = [*names.SERVERS.values(), names.WORKER]
    members = {"key": names.COMPONENT, "operator": "In", "values": components}
    return {"matchLabels": labels, "matchExpressions": [members]}


def _openai(model: SpeculativeModel) -> list[dict[str, Any]]:
    endpoint = model.spec.serving.open_ai
    return [{"port": endpoint.port, "protocol": "TCP"}] if endpoint else []


def _ports(server: Serving, *which: str) -> list[dict[str, Any]]:
    return [{"port": server.ports[name], "protocol": "TCP"} for name in which]
