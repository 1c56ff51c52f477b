"""A real node: pods, Services, names, GPUs, volumes, and complete removal."""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Node, cli, network, processes
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.handle import attach
from cluster.objects import gpus_offered
from cluster.processes import TIMEOUT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(
        platform.system() != "Linux" or os.geteuid() != 0, reason="a node needs Linux and root"
    ),
]
PAUSE = "localhost/specdec-pause:1"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(f"self-{os.getpid()}", gpus=4, volumes=2) as running:
        yield running


def pod(name: str, gpus: int = 0, **extra: Any) -> str:
    container: dict[str, Any] = {"name": "main", "image": PAUSE}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, **extra}
    metadata = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_pod_gets_its_gpus_and_the_next_pod_waits(node: Node) -> None:
    node.kubectl("apply", "-f", "-", stdin=pod("with-gpus", 3))
    node.kubectl("wait", "--for=condition=Ready", "pod/with-gpus", TIMEOUT)
    visible = environment_of(node.get("pod", "with-gpus")["metadata"]["uid"])
    assert len(visible["NVIDIA_VISIBLE_DEVICES"].split(",")) == 3
    node.kubectl("apply", "-f", "-", stdin=pod("too-many", 2))
    path = "{.status.conditions[0].message}"
    processes.until(
        lambda: (
            "Insufficient nvidia.com/gpu"
            in node.kubectl("get", "pod", "too-many", "-o", f"jsonpath={path}")
        ),
        lambda: "the second pod was not refused for its GPUs",
    )
    node.kubectl("delete", "pods", "--all")


def environment_of(pod_uid: str) -> dict[str, str]:
    """Return the environment of the pod's container that has GPUs."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = pod_uid in (entry / "cgroup").read_text()
            pairs = (entry / "environ").read_text().split("\0") if inside else []
        except OSError:
            continue  # The process has ended.
        environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if "NVIDIA_VISIBLE_DEVICES" in environment:
            return environment
    raise AssertionError(f"no process of pod {pod_uid} has GPUs")


def test_dns_resolves_names_of_services(node: Node) -> None:
    node.kubectl("create", "service", "clusterip", "named", "--tcp=80:80")
    address = node.kubectl("get", "service", "named", "-o", "jsonpath={.spec.clusterIP}")

    def resolved() -> bool:
        name = "named.default.svc.cluster.local"
        try:
            return dns_answer(node.state.addresses.host, name) == address
        except TimeoutError:  # The server did not listen yet, so the query was lost.
            return False

    processes.until(resolved, lambda: "the name of a Service does not resolve")
    assert dns_answer(node.state.addresses.host, "example.com") is None


def dns_answer(server: str, name: str) -> str | None:
    """Return the IPv4 address that the DNS server has for name, or None."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = b"\x07\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(query, (server, 53))
        answer = client.recv(512)
    answers = int.from_bytes(answer[6:8], "big")
    return socket.inet_ntoa(answer[-4:]) if answers and answer[3] & 0xF == 0 else None


def test_volume_of_a_deleted_claim_becomes_available_empty(node: Node) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"}}
    node.kubectl("apply", "-f", "-", stdin=json.dumps({**claim, "spec": spec}))
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/one", TIMEOUT)
    name = node.kubectl("get", "pvc", "one", "-o", "jsonpath={.spec.volumeName}")
    (node.volume(name) / "left").write_text("over")
    node.kubectl("delete", "pvc", "one")
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Available", f"pv/{name}", TIMEOUT)
    assert list(node.volume(name).iterdir()) == []


def test_node_cannot_open_connections_beyond_itself(node: Node) -> None:
    """Check that a node reaches neither other networks nor listening programs of this machine."""
    inside = network.enter(node.state)
    with pytest.raises(ClusterError, match="unreachable"):
        network.run([*inside, "ip", "route", "get", "192.0.2.1"])
    with socket.create_server(("0.0.0.0", 0)) as listener:  # noqa: S104 - what must not be reached
        host = f"10.215.{node.state.addresses.subnet}.1"
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(({host!r}, {port}), 2)"
        done = subprocess.run([*inside, sys.executable, "-c", code], capture_output=True)
    assert b"TimeoutError" in done.stderr


def test_gpus_survive_a_restart_of_the_kubelet(node: Node) -> None:
    kubelet = processes.recorded(node.state.folder)["kubelet"]
    argv = Path(f"/proc/{kubelet.pid}/cmdline").read_text().split("\0")[:-1]
    api = Api(node.kubeconfig)
    processes.stop(kubelet, 10)
    network.start_inside(node.state, "kubelet", argv)
    processes.until(lambda: gpus_offered(api, node.name) == 0, lambda: "nothing was reset")
    processes.until(lambda: gpus_offered(api, node.name) == 4, lambda: "the GPUs did not return")


def test_number_of_gpus_of_a_running_node_is_set(node: Node) -> None:
    api, before = Api(node.kubeconfig), processes.recorded(node.state.folder)["gpuplugin"]
    for count in (2, 0, 4):
        assert cli.main(["gpus", "--name", node.name, str(count)]) == 0
        assert gpus_offered(api, node.name) == count
    assert not before.alive
    assert attach(node.name).state == node.state


def test_down_removes_everything_with_pods_running(node: Node) -> None:
    assert "/var/lib/kubelet" in processes.mount_points()
    with Node(f"other-{os.getpid()}", gpus=0, volumes=1) as other:
        assert other.state.addresses.subnet != node.state.addresses.subnet
        other.kubectl("apply", "-f", "-", stdin=pod("stays"))
        other.kubectl("wait", "--for=condition=Ready", "pod/stays", TIMEOUT)
        folder, name = other.state.folder, other.name
        holder = processes.recorded(folder)[network.HOLDER]
        inside = set(processes.children(holder.pid))
        # The worst case: all processes are killed, so they cannot clean up.
        for process in processes.recorded(folder).values():
            if process.name not in ("namespaces", network.HOLDER):
                processes.stop(process, 0)
    assert inside
    assert not [pid for pid in inside if Path(f"/proc/{pid}").exists()]
    assert not folder.exists()
    assert not list(processes.strays(folder))
    assert not list(Path("/sys/fs/cgroup").glob(f"**/specdec-{name}-*"))
    assert f"specdec-{name}" not in Path("/proc/self/mountinfo").read_text()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    # The first node still works, although both nodes mount over the same folders.
    inside_now = network.run([*network.enter(node.state), "ls", "/var/lib/kubelet"])
    assert "device-plugins" in inside_now
