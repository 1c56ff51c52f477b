"""The ConfigMap with the programs that run in a server's pod: file check, probes, hook, sidecar.

Its name contains a hash of the programs. The pods of an earlier release therefore keep the
programs that fit their arguments, and a change of a program replaces pods like any other change of
their template.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from specdec import servers
from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata
from specdec.triton import launch

COMPONENT = "programs"
MOUNT = {"name": COMPONENT, "mountPath": launch.PROGRAMS, "readOnly": True}


def name(model: SpeculativeModel) -> str:
    """The name of this release's ConfigMap."""
    return names.job_name(model, COMPONENT, _digest(tuple(_sources(model).items())))


def config_map(model: SpeculativeModel) -> dict[str, Any]:
    """The programs by file name. The kubelet starts no container before the ConfigMap exists."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(model, name(model), COMPONENT),
        "data": dict(_sources(model)),
    }


def volume(model: SpeculativeModel) -> dict[str, Any]:
    """The volume of a pod whose containers mount `MOUNT`."""
    return {"name": COMPONENT, "configMap": {"name": name(model)}}


def config_map_names(pod_spec: Mapping[str, Any]) -> Iterator[str]:
    """Names of the ConfigMaps that a live pod or pod template mounts."""
    for item in pod_spec.get("volumes") or ():
        if "configMap" in item:
            yield item["configMap"]["name"]


@cache
def _digest(sources: tuple[tuple[str, str], ...]) -> str:
    return names.digest(dict(sources))


def _sources(model: SpeculativeModel) -> Mapping[str, str]:
    return {file: launch.program(file) for file in servers.of(model).serving.files}
