"""Optional kinds of a cluster: the published CRDs of KEDA and of the Gateway API."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from cluster import ClusterError, binaries
from cluster.handle import Cluster
from controlplane.operating import until

FILES = {
    "github.com/kedacore/keda/v2": "config/crd/bases/keda.sh_scaledobjects.yaml",
    "sigs.k8s.io/gateway-api": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
}


def files() -> list[Path]:
    """Return the CRD files of the pinned versions."""
    return [binaries.source("definitions", module) / file for module, file in FILES.items()]


@contextlib.contextmanager
def installed(plane: Cluster, manifests: Sequence[Path] = ()) -> Iterator[None]:
    """Install the CRDs in `manifests`, by default those of `FILES`, and delete them at the end."""
    manifests = manifests or files()
    names = [str(yaml.safe_load(file.read_text())["metadata"]["name"]) for file in manifests]
    for file in manifests:
        plane.kubectl("apply", "--server-side", "-f", str(file))
    until(lambda: all(_served(plane, name) for name in names), f"served {names}")
    try:
        yield
    finally:
        plane.kubectl("delete", "crd", *names, "--ignore-not-found")
        until(lambda: not any(_served(plane, name) for name in names), f"no {names}")


def _served(plane: Cluster, kind: str) -> bool:
    try:
        plane.kubectl("get", kind, "-n", "default")
    except ClusterError:
        return False
    return True
