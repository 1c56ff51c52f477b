"""The Service in front of the serving pods."""

from collections.abc import Mapping
from typing import Any

from specdec import servers
from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import given, metadata
from specdec.desired.openai import CONTAINER


def service(
    model: SpeculativeModel, role: str = "target", annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The Service of a role's server, with the ports of the front end by name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(
            model,
            names.server_name(model, role),
            "network",
            annotations=annotations,
            tags=model.spec.metadata.services,
        ),
        "spec": {
            "type": model.spec.networking.service.type,
            "selector": names.selector(model, role),
            "ports": _ports(model),
            # The API server's defaults. Server-side apply then reverts changes by others, which
            # could keep clients from reaching pods.
            "sessionAffinity": "None",
            "publishNotReadyAddresses": False,
            "internalTrafficPolicy": "Cluster",
        },
    }


def _ports(model: SpeculativeModel) -> list[dict[str, Any]]:
    """The ports of clients and of the metrics."""
    server = servers.of(model).serving
    served = {*server.clients(takes_http=model.spec.serving.takes_http), server.metrics}
    ports: list[dict[str, Any]] = [
        {"name": name, "port": server.ports[name], "targetPort": name, "protocol": "TCP"}
        for name in server.ports
        if name in served
    ]
    if endpoint := model.spec.serving.open_ai:
        port = {"name": CONTAINER, "port": endpoint.port, "targetPort": CONTAINER}
        ports.append({**port, "protocol": "TCP"})
    if model.spec.serving.tls is None:
        return ports
    # A service mesh treats a port named grpc as unencrypted unless appProtocol names TLS. With
    # "https" some load balancers would send HTTP health checks to it.
    encrypted = {server.grpc: {"appProtocol": "tls"}}
    return [port | encrypted.get(port["name"], {}) for port in ports]


def url(model: SpeculativeModel, role: str = "target") -> str:
    """The URL of a server inside the cluster, for HTTP or, if the server accepts none, gRPC."""
    serving, server = model.spec.serving, servers.of(model).serving
    if serving.takes_http:
        return f"http://{address(model, role, server.http)}"
    return f"{'grpcs' if serving.tls else 'grpc'}://{address(model, role, server.grpc)}"


def endpoint(model: SpeculativeModel, role: str) -> dict[str, str]:
    """The entry of a server in the status."""
    server, settings = servers.of(model).serving, model.spec.serving.open_ai
    grpc = address(model, role, server.grpc) if server.grpc in server.ports else None
    port = settings.port if settings else server.ports.get(server.openai)
    base = f"http://{_host(model, role)}:{port}/v1" if port else None
    return {"role": role, "url": url(model, role), **given(grpc=grpc, openAI=base)}


def address(model: SpeculativeModel, role: str, port: str) -> str:
    """Host and number of a port, by its name, for clients inside the cluster."""
    return f"{_host(model, role)}:{servers.of(model).serving.ports[port]}"


def _host(model: SpeculativeModel, role: str) -> str:
    return f"{names.server_name(model, role)}.{model.metadata.namespace}.svc"
