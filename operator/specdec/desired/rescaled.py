"""A live server with other replicas or a renewed certificate, and nothing else changed.

While another revision is built, the live one is still scaled, suspended and given renewed
certificates. Its pod template comes from the live object: an operator of another release would
render another one, and so restart the pods.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata


def deployment(
    model: SpeculativeModel, role: str, live: Mapping[str, Any], replicas: int, certificate: str
) -> dict[str, Any]:
    """The live Deployment of a role; `certificate` is the mark of its pods' files, if any."""
    spec = _without_nulls(live["spec"]) | {"replicas": replicas}
    if certificate:
        annotations = spec["template"]["metadata"].get("annotations", {})
        spec["template"]["metadata"]["annotations"] = {
            **annotations,
            names.CERTIFICATE: certificate,
        }
    name = names.server_name(model, role)
    meta = _metadata(model, name, names.SERVERS[role], live)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def leader_worker_set(
    model: SpeculativeModel, live: Mapping[str, Any], replicas: int
) -> dict[str, Any]:
    """The live LeaderWorkerSet."""
    return {
        "apiVersion": names.GROUP_API,
        "kind": names.GROUP_KIND,
        "metadata": _metadata(model, names.group_name(model), "server", live),
        "spec": _without_nulls(live["spec"]) | {"replicas": replicas},
    }


def _metadata(
    model: SpeculativeModel, name: str, component: str, live: Mapping[str, Any]
) -> dict[str, Any]:
    repository = live["metadata"].get("annotations", {}).get(names.REPOSITORY, "")
    tags = model.spec.metadata.servers
    return metadata(model, name, component, annotations={names.REPOSITORY: repository}, tags=tags)


def _without_nulls(value: Any) -> Any:
    """A copy without nulls, such as creationTimestamp of a template: apply refuses them."""
    if isinstance(value, Mapping):
        return {k: _without_nulls(item) for k, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
