"""A live Deployment or LeaderWorkerSet with new replicas or a new certificate fingerprint only.

The operator applies these while another revision is built: it still scales and suspends the live
one. It also replaces the pods of a Deployment whose certificate files were renewed. The pod
template is a copy of the live one. If this release rendered it again, any difference would restart
the pods.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata


def deployment(
    model: SpeculativeModel, role: str, live: Mapping[str, Any], replicas: int, certificate: str
) -> dict[str, Any]:
    """The live Deployment of a role with these replicas.

    `certificate` is the fingerprint of the certificate files for the annotation of its pods
    (`pipeline/pods/certificate_rotation.py`), empty without one.
    """
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
    """The live LeaderWorkerSet with these replicas."""
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
