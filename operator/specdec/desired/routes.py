"""The way from outside to the target's server: an HTTPRoute or an Ingress, both for HTTP alone."""

from typing import Any

from specdec.api.kinds import EXTRAS
from specdec.api.model import SpeculativeModel
from specdec.api.networking import GatewayRoute, IngressRoute
from specdec.desired.child import given, metadata
from specdec.desired.serving import PORTS


def objects(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """The route of a resource that asks for one; it stays while the resource is suspended."""
    asked, name = model.spec.networking, model.metadata.name
    if asked.gateway is not None:
        return (_object(model, "HTTPRoute", _http_route(asked.gateway, name)),)
    if asked.ingress is not None:
        return (_object(model, "Ingress", _ingress(asked.ingress, name)),)
    return ()


def _object(model: SpeculativeModel, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    tags = model.spec.metadata.routes
    return {
        "apiVersion": EXTRAS[kind].version,
        "kind": kind,
        "metadata": metadata(model, model.metadata.name, "route", tags=tags),
        "spec": spec,
    }


def _http_route(route: GatewayRoute, service: str) -> dict[str, Any]:
    parents = [
        given(
            name=parent.name,
            namespace=parent.namespace,
            sectionName=parent.section_name,
            port=parent.port,
        )
        for parent in route.parent_refs
    ]
    backend = {"name": service, "port": PORTS["http"]}
    return {
        "parentRefs": parents,
        **given(hostnames=list(route.hostnames)),
        "rules": [{"backendRefs": [backend]}],
    }


def _ingress(route: IngressRoute, service: str) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": {"number": PORTS["http"]}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    tls = [{"hosts": list(route.hosts), "secretName": route.tls_secret_name}]
    return {
        **given(ingressClassName=route.class_name),
        "rules": [{"host": host, "http": {"paths": [path]}} for host in route.hosts],
        **given(tls=tls if route.tls_secret_name else None),
    }
