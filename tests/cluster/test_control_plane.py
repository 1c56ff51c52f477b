"""The control plane with simulated nodes, used as an operator's tests use it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import ControlPlane, lifecycle, processes, state, users
from cluster.errors import ClusterError

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.slow,
    pytest.mark.nightly,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    name = f"self-{os.getpid()}"
    with ControlPlane(
        name, hold_jobs=True, volumes=3, users=users({"alice": ("team-a",)})
    ) as control_plane:
        yield control_plane


def eventually(cluster: ControlPlane, what: str, expected: str, path: str) -> None:
    def holds() -> bool:
        return cluster.kubectl("get", what, "-o", f"jsonpath={path}") == expected

    processes.until(holds, lambda: f"{what} never had {expected!r} at {path}", step=0.1)


def job(name: str, **annotations: str) -> str:
    container: dict[str, Any] = {"name": "main", "image": "none"}
    container["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    body = {"template": template, "backoffLimit": 0}
    return json.dumps(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}
    )


def pod_of(cluster: ControlPlane, name: str) -> dict[str, Any]:
    selector = f"job-name={name}"

    def runs() -> bool:
        pods = cluster.get("pods", "-l", selector)["items"]
        return bool(pods) and pods[0]["status"]["phase"] != "Pending"

    processes.until(runs, lambda: f"the pod of {name} never ran", step=0.1)
    pod: dict[str, Any] = cluster.get("pods", "-l", selector)["items"][0]
    return pod


@pytest.mark.parametrize(
    ("code", "condition"), [(0, "Complete"), (137, "Failed")], ids=["success", "failure"]
)
def test_held_job_ends_with_the_given_outcome(
    cluster: ControlPlane, code: int, condition: str
) -> None:
    name = f"held-{code}"
    cluster.kubectl("apply", "-f", "-", stdin=job(name))
    pod = pod_of(cluster, name)
    assert pod["status"]["phase"] == "Running"
    message = '{"engine": {"key": "a \\"quoted\\" one"}}'
    cluster.finish(
        "default", pod["metadata"]["name"], message=message, exit_code=code, reason="Given"
    )
    eventually(
        cluster, f"job/{name}", "True", f'{{.status.conditions[?(@.type=="{condition}")].status}}'
    )
    ended = pod_of(cluster, name)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (code, "Given", message)


def test_annotation_sets_the_outcome_of_a_job(cluster: ControlPlane) -> None:
    asked = {"sim.specdec.dev/outcome": "succeed", "sim.specdec.dev/message": "done"}
    cluster.kubectl("apply", "-f", "-", stdin=job("decided", **asked))
    eventually(cluster, "job/decided", "1", "{.status.succeeded}")


def test_pod_stays_pending_without_free_gpus(cluster: ControlPlane) -> None:
    for number in range(9):  # 2 nodes with 8 GPUs have room for 8 jobs of 2.
        cluster.kubectl("apply", "-f", "-", stdin=job(f"many-{number}"))

    def counted() -> dict[str, int]:
        pods = cluster.get("pods", "-l", "job-name")["items"]
        phases = [
            pod["status"]["phase"]
            for pod in pods
            if pod["metadata"]["labels"]["job-name"].startswith("many-")
        ]
        return {phase: phases.count(phase) for phase in set(phases)}

    processes.until(
        lambda: counted() == {"Running": 8, "Pending": 1}, lambda: str(counted()), step=0.2
    )
    cluster.kubectl("delete", "jobs", "--all", "--wait=false")


def test_volume_of_a_deleted_claim_binds_again(cluster: ControlPlane) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
    body = json.dumps({**claim, "metadata": {"name": "one"}})
    for _ in range(4):  # The cluster has 3 volumes.
        cluster.kubectl("apply", "-f", "-", stdin=body)
        eventually(cluster, "pvc/one", "Bound", "{.status.phase}")
        cluster.kubectl("delete", "pvc/one")


def test_user_without_roles_is_forbidden(cluster: ControlPlane) -> None:
    alice = cluster.user("alice")
    assert "team-a" in cluster.kubectl("auth", "whoami", user=alice)
    with pytest.raises(ClusterError, match=r'pods is forbidden: User "alice" cannot list'):
        cluster.kubectl("get", "pods", user=alice)
    with pytest.raises(ClusterError, match="started without the user 'bob'"):
        cluster.user("bob")


def test_service_account_token_has_the_rights_of_the_account(cluster: ControlPlane) -> None:
    cluster.kubectl("create", "serviceaccount", "robot")
    cluster.kubectl(
        "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"
    )
    robot = cluster.service_account("default", "robot")
    assert "system:serviceaccount:default:robot" in cluster.kubectl("auth", "whoami", user=robot)
    cluster.kubectl("get", "pods", user=robot)
    with pytest.raises(ClusterError, match="forbidden"):
        cluster.kubectl("create", "configmap", "not-allowed", user=robot)


def test_second_cluster_runs_beside_the_first_and_is_removed_completely(tmp_path: Path) -> None:
    with ControlPlane(f"other-{os.getpid()}", kwok=False, volumes=0) as other:
        other.kubectl("create", "configmap", "mine")
        folder = other.state.folder
        started = processes.recorded(folder)
        again = lifecycle.up(other.name, other.options, lambda _: None)
        assert again == other.state
        with pytest.raises(ClusterError, match="up with other options"):
            lifecycle.up(other.name, state.Options(gpus=1), lambda _: None)
    assert len(started) == 5
    assert not any(process.alive for process in started.values())
    assert not folder.exists()
    assert state.load(other.name) is None


def test_crashed_cluster_is_detected_and_replaced() -> None:
    with ControlPlane(f"crash-{os.getpid()}", kwok=False, volumes=0) as crashed:
        before = processes.recorded(crashed.state.folder)
        processes.stop(before["etcd"], 0)
        assert not lifecycle.running(crashed.state)
        fresh = lifecycle.up(crashed.name, crashed.options, lambda _: None)
        assert lifecycle.running(fresh)
        assert not any(process.alive for process in before.values())


def test_sweep_removes_the_cluster_of_a_killed_run() -> None:
    name = f"orphan-{os.getpid()}"
    code = (
        "import os, signal, cluster\n"
        f"cluster.ControlPlane({name!r}, kwok=False, volumes=0).__enter__()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    tests = str(Path(__file__).resolve().parents[1])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": tests})
    orphan = state.load(name)
    assert orphan is not None
    started = processes.recorded(orphan.folder)
    assert all(process.alive for process in started.values())
    lifecycle.sweep(lambda _: None)
    assert not any(process.alive for process in started.values())
    assert state.load(name) is None
