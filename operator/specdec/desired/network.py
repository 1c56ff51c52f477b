"""The Service in front of the serving pods."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata
from specdec.desired.serving import PORTS


def service(
    model: SpeculativeModel, role: str = "target", annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A Service with the ports of a tritonserver by name; `role` is whose server."""
    ports = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in PORTS.items()
    ]
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
            "ports": ports,
        },
    }


def url(model: SpeculativeModel) -> str:
    """Where clients inside the cluster reach the HTTP endpoint."""
    return f"http://{model.metadata.name}.{model.metadata.namespace}.svc:{PORTS['http']}"
