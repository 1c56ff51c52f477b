"""The agent as a process under a real mpirun: it starts and ends with its group."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton import launch
from specdec.triton.layout import Launch, Mode

AGENT = Path(launch.__file__).parents[1] / "images" / "serving" / "agent.py"
LEADER = "big-group-0.big-group.models"
# A fake tritonserver: rank 0 drains for a second; the other ranks end when it has drained.
_SERVER = """\
import os, pathlib, signal, time
rank, here = os.environ["OMPI_COMM_WORLD_RANK"], pathlib.Path(os.environ["LAB"])
(here / f"rank-{rank}").write_text(f"{os.environ['POD']} {os.getpid()}")

def drain(*_):
    time.sleep(1)
    (here / "drained").touch()
    os._exit(0)

if rank == "0":
    signal.signal(signal.SIGTERM, drain)
while rank == "0" or not (here / "drained").exists():
    time.sleep(0.05)
"""
# This module replaces the cluster's DNS.
_DNS = """\
import socket
_real = socket.getaddrinfo
_table = {"big-group-0-1.big-group.models": "127.0.0.2",
          "big-group-0-2.big-group.models": "127.0.0.3"}
socket.getaddrinfo = lambda host, *a, **k: _real(_table.get(host, host), *a, **k)
"""


class Group:
    """A leader and two workers on loopback addresses, with Open MPI's own mpirun."""

    def __init__(self, lab: Path) -> None:
        self.lab = lab
        for folder in ("bin", "dns", "0", "1", "2"):
            (lab / folder).mkdir()
        server, key = lab / "bin" / "tritonserver", lab / "key"
        key.write_text("the key of the group, long enough")
        (lab / "server.py").write_text(_SERVER)
        (lab / "dns" / "sitecustomize.py").write_text(_DNS)
        script = f'#!/bin/bash\nexec -a tritonserver {sys.executable} {lab}/server.py "$@"\n'
        server.write_text(script)
        server.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{lab / 'bin'}:{os.environ['PATH']}",
            "LAB": str(lab),
            "SPECDEC_GROUP_KEY": str(key),
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def worker(self, index: int) -> None:
        own = {"SPECDEC_GROUP_ADDRESS": f"127.0.0.{index + 1}"}
        argv = [sys.executable, str(AGENT), "serve"]
        self.workers.append(self._start(argv, index, own))

    def leader(self) -> "subprocess.Popen[bytes]":
        shell = launch.remote_shell([sys.executable, str(AGENT), "call", "30"])
        own = {"LWS_LEADER_ADDRESS": LEADER, "PYTHONPATH": str(self.lab / "dns"), **shell}
        return self._start(launch.command(Launch(Mode.LEADER, 4, (2, 1, 1)), "/r"), 0, own)

    def _start(self, argv: list[str], pod: int, own: dict[str, str]) -> "subprocess.Popen[bytes]":
        environment = {**self.environment, **own, "POD": str(pod), "TMPDIR": f"{self.lab}/{pod}"}
        return subprocess.Popen(argv, env=environment)

    def ranks(self) -> dict[str, str]:
        """Return the pod of every rank that has started."""
        # A file without content is still being written, so its rank does not count yet.
        written = {file.name: file.read_text().split() for file in self.lab.glob("rank-*")}
        return {name: values[0] for name, values in written.items() if values}

    def pid(self, rank: int) -> int:
        return int((self.lab / f"rank-{rank}").read_text().split()[1])


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    if shutil.which("mpirun") is None:
        pytest.skip("Open MPI is not installed")
    group = Group(tmp_path)
    yield group
    for worker in group.workers:
        worker.kill()
        worker.wait()


EVERYWHERE = {"rank-0": "0", "rank-1": "0", "rank-2": "1", "rank-3": "2"}


def test_ranks_come_up_in_their_pods_whoever_is_first_and_rank_0_drains(group: Group) -> None:
    group.worker(2)
    leader = group.leader()
    assert not group.ranks()
    group.worker(1)
    until(lambda: group.ranks() == EVERYWHERE, lambda: f"ranks: {group.ranks()}")

    # The whole group gets SIGTERM: workers wait for the leader, whose hook ends rank 0.
    for worker in group.workers:
        worker.send_signal(signal.SIGTERM)
    os.kill(group.pid(0), signal.SIGTERM)
    assert leader.wait(DEADLINE_SECONDS) == 0
    assert (group.lab / "drained").exists()
    assert [worker.wait(DEADLINE_SECONDS) for worker in group.workers] == [0, 0]


def test_a_worker_that_is_killed_ends_the_group(group: Group) -> None:
    group.worker(1)
    group.worker(2)
    leader = group.leader()
    until(lambda: group.ranks() == EVERYWHERE, lambda: f"ranks: {group.ranks()}")
    os.kill(group.pid(2), signal.SIGKILL)
    assert leader.wait(DEADLINE_SECONDS) != 0
    for worker in group.workers:
        worker.wait(DEADLINE_SECONDS)


def test_a_worker_without_a_leader_ends_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the key of the group, long enough")
    own = {"SPECDEC_GROUP_ADDRESS": "127.0.0.9", "SPECDEC_GROUP_KEY": str(tmp_path / "key")}
    with subprocess.Popen([sys.executable, str(AGENT), "serve"], env=os.environ | own) as worker:
        until(lambda: listens("127.0.0.9"), lambda: "no worker listens")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0


def test_a_worker_runs_the_daemon_of_its_leader_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the key of the group, long enough")
    (tmp_path / "orted").write_text('#!/bin/sh\necho "$@" > "$LAB/asked"\nexit 7\n')
    (tmp_path / "orted").chmod(0o755)
    own = {
        "SPECDEC_GROUP_ADDRESS": "127.0.0.10",
        "SPECDEC_GROUP_KEY": str(tmp_path / "key"),
        "LWS_LEADER_ADDRESS": "127.0.0.10",
        "LAB": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    program = "import socket, sys; sys.path[0:0] = [sys.argv[1]]; import agent; agent.worker = "
    program += "lambda host, leader: leader; sys.exit(agent.main(sys.argv[2:]))"
    call = [sys.executable, "-c", program, str(AGENT.parent), "call", "20", "worker-1", "orted -x"]
    with subprocess.Popen([sys.executable, str(AGENT), "serve"], env=os.environ | own) as worker:
        assert subprocess.run(call, env=os.environ | own, timeout=DEADLINE_SECONDS).returncode == 7
        assert worker.wait(DEADLINE_SECONDS) == 7
    assert (tmp_path / "asked").read_text() == "-x\n"


def listens(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, 8003)) == 0


def test_an_idle_worker_stops_on_sigterm(group: Group) -> None:
    group.worker(1)
    (worker,) = group.workers
    # The worker handles SIGTERM before it listens; a caller without the key does not end it.
    until(lambda: listens("127.0.0.2"), lambda: "no worker listens")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE_SECONDS) == 0
