"""The real LeaderWorkerSet manager as a process beside the control plane."""

import base64
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster import ClusterError, ControlPlane, binaries
from cluster.processes import DEADLINE_SECONDS
from cluster.progress import report
from controlplane.operating import Object, until
from specdec.api import names
from support.ports import reserved

CRD = "leaderworkersets.leaderworkerset.x-k8s.io"
MODULE = "sigs.k8s.io/lws"


def sources() -> Path:
    """Return the folder of the manager's published manifests, of the pinned version."""
    return binaries.source("lws", MODULE) / "config"


def definition() -> Path:
    """Return the file of the LeaderWorkerSet CRD."""
    return sources() / "crd" / "bases" / "leaderworkerset.x-k8s.io_leaderworkersets.yaml"


@contextlib.contextmanager
def manager(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Install the CRD, start the manager and install its webhooks; remove them all at the end."""
    binaries.ensure(["lws", "keys"], report)
    with reserved(2) as (port, health):
        authority = _keys(folder)
        plane.kubectl("apply", "--server-side", "-f", str(definition()))
        until(lambda: _served(plane), "a served LeaderWorkerSet")
        hooks = list(_webhooks(port, authority))
        process = _start(plane, folder, port, health)
        try:
            until(
                lambda: _listens(process, port), lambda: (folder / "lws.log").read_text()[-2000:]
            )
            plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(hooks))
            yield
        finally:
            for hook in hooks:
                argv = ("delete", hook["kind"], hook["metadata"]["name"], "--ignore-not-found")
                plane.kubectl(*argv)
            plane.kubectl("delete", "crd", CRD, "--ignore-not-found")
            until(lambda: not _served(plane), "a LeaderWorkerSet that is not served")
            process.terminate()
            process.wait(timeout=DEADLINE_SECONDS)


def _keys(folder: Path) -> str:
    """Create a certificate for the webhooks; return its CA certificate (base64 of PEM)."""
    argv = [str(binaries.path("keys")), "--dir", str(folder), "--hosts", "127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True)
    for made, name in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        (folder / made).rename(folder / name)
    return base64.b64encode((folder / "ca.crt").read_bytes()).decode()


def _start(plane: ControlPlane, folder: Path, port: int, health: int) -> "subprocess.Popen[bytes]":
    settings: dict[str, Any] = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(folder)},
    }
    file = folder / "lws.yaml"
    file.write_text(yaml.safe_dump(settings))
    argv = [str(binaries.path("lws")), f"--config={file}", f"--kubeconfig={plane.kubeconfig}"]
    with (folder / "lws.log").open("wb") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log)


def _webhooks(port: int, authority: str) -> Iterator[Object]:
    """Yield the manager's webhooks with local URLs; of all pods, they get only the operator's."""
    text = (sources() / "webhook" / "manifests.yaml").read_text()
    for configuration in yaml.safe_load_all(text):
        configuration["metadata"]["name"] = f"lws-{configuration['metadata']['name']}"
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": authority,
            }
            if hook["name"].endswith("pod.kb.io"):
                hook["objectSelector"] = {"matchLabels": {names.MANAGED_BY: names.MANAGER}}
        yield configuration


def _served(plane: ControlPlane) -> bool:
    try:
        plane.kubectl("get", CRD, "-n", "default")
    except ClusterError:
        return False
    return True


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None, "the manager ended"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
