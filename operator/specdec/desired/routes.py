"""The route from outside to the target's server: an HTTPRoute or an Ingress, for HTTP only."""

from collections.abc import Mapping
from typing import Any

from specdec import servers
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.api.networking import GatewayRoute, IngressRoute
from specdec.desired.child import given, metadata
from specdec.servers.kind import Serving


def kind(model: SpeculativeModel) -> str | None:
    """The kind of the route; None without one."""
    networking = model.spec.networking
    if networking.gateway is not None:
        return "HTTPRoute"
    return "Ingress" if networking.ingress is not None else None


def objects(model: SpeculativeModel, share: int = 0) -> tuple[dict[str, Any], ...]:
    """The route of a resource that asks for one; it stays while the resource is suspended.

    `share` is the percentage of the route's requests that now go to the resource of the split.
    """
    networking, name, port = (
        model.spec.networking,
        model.metadata.name,
        _port(servers.of(model).serving),
    )
    if networking.gateway is not None:
        route = _http_route(networking.gateway, name, share, port)
        return (_object(model, "HTTPRoute", route),)
    if networking.ingress is not None:
        return (_object(model, "Ingress", _ingress(networking.ingress, name, port)),)
    return ()


def _object(model: SpeculativeModel, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    tags = model.spec.metadata.routes
    return {
        "apiVersion": OPTIONAL_KINDS[kind].version,
        "kind": kind,
        "metadata": metadata(model, model.metadata.name, "route", tags=tags),
        "spec": spec,
    }


def sends_to(route: Mapping[str, Any], name: str) -> bool:
    """Whether a live HTTPRoute gives the Service of that name a share of its requests."""
    rules = route.get("spec", {}).get("rules", [])
    backends = [backend for rule in rules for backend in rule.get("backendRefs", [])]
    return any(backend["name"] == name and backend.get("weight", 1) > 0 for backend in backends)


def _port(server: Serving) -> int:
    return server.ports[server.http]


def _http_route(route: GatewayRoute, service: str, share: int, port: int) -> dict[str, Any]:
    parents = [
        given(
            name=parent.name,
            namespace=parent.namespace,
            sectionName=parent.section_name,
            port=parent.port,
        )
        for parent in route.parent_refs
    ]
    return {
        "parentRefs": parents,
        **given(hostnames=list(route.hostnames)),
        "rules": [{"backendRefs": _backends(route, service, share, port)}],
    }


def _backends(route: GatewayRoute, service: str, share: int, port: int) -> list[dict[str, Any]]:
    """Services and their weights, without filters: not every Gateway supports those."""
    own = {"name": service, "port": port}
    if route.split is None or share == 0:
        # A Service without a share is left out: it may not exist, and the Gateway would reject it.
        return [own]
    other = {"name": route.split.model_ref.name, "port": port}
    return [{**own, "weight": 100 - share}, {**other, "weight": share}]


def _ingress(route: IngressRoute, service: str, port: int) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": {"number": port}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    tls = [{"hosts": list(route.hosts), "secretName": route.tls_secret_name}]
    return {
        **given(ingressClassName=route.class_name),
        "rules": [{"host": host, "http": {"paths": [path]}} for host in route.hosts],
        **given(tls=tls if route.tls_secret_name else None),
    }
