"""A holder of the Lease that resumes after the Lease's duration writes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from controlplane.operating import until
from specdec.controller.leader_election import LeaseLostError
from specdec.controller.standby import write_fence
from support.simulated_clock import run
from unit.controller.leases import SECONDS, Server, candidate, now

# The program of a holder that writes as often as possible.
HOLDER = """
import asyncio
import time
from specdec.controller import standby
from specdec.cluster.login import connect
from specdec.controller.leader_election import Lease

async def write_repeatedly(cluster, pause):
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    body["metadata"] = {"name": "x", "namespace": "ns"}
    while True:
        await cluster.create({**body, "data": {"started": time.monotonic()}})
        await asyncio.sleep(pause)

async def main():
    async with connect() as cluster:
        lease = Lease(cluster, "system", "operator", "me", duration=6)
        async with standby.hold_lease(lease):
            writer = cluster.fenced(standby.write_fence(lease))
            await asyncio.gather(*(write_repeatedly(writer, pause / 1000) for pause in range(64)))

asyncio.run(main())
"""


async def scenario() -> None:
    server = Server(latency=0.1)
    lease = candidate(server, "one")
    exits: list[float] = []
    check = write_fence(lease, exit_now=lambda: exits.append(now()))
    await lease.acquire()
    check()
    lease._renewed = now() - SECONDS * 2 / 3 + 0.01
    check()
    lease._renewed = now() - SECONDS * 2 / 3
    with pytest.raises(LeaseLostError):
        check()
    assert exits == [now()]


def test_fence_closes_before_another_may_take_the_lease() -> None:
    run(scenario())


class Api(BaseHTTPRequestHandler):
    """Stores a Lease, and the start time of every other write by the machine's clock."""

    protocol_version = "HTTP/1.1"
    lease: ClassVar[dict[str, Any]] = {}
    writes: ClassVar[list[float]] = []
    # The process to freeze at its next write of the Lease; the write then waits for `may_arrive`.
    to_freeze: ClassVar[int | None] = None
    may_arrive: ClassVar[Event] = Event()

    @classmethod
    def store(cls, lease: Mapping[str, Any]) -> bool:
        """Store the Lease if its version is current, as an API server does; return the success."""
        stored = cls.lease.get("metadata", {}).get("resourceVersion")
        if lease["metadata"].get("resourceVersion") != stored:
            return False
        version = str(int(stored or 0) + 1)
        cls.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": version}}
        return True

    def do_GET(self) -> None:
        self._respond(200 if self.lease else 404, self.lease or {"message": "not found"})

    def do_POST(self) -> None:
        self._write()

    def do_PUT(self) -> None:
        self._write()

    def _write(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["kind"] == "Lease":
            self._write_lease(body)
        else:
            self.writes.append(body["data"]["started"])
            self._respond(201, body)

    def _write_lease(self, lease: Mapping[str, Any]) -> None:
        if (pid := Api.to_freeze) is not None:
            Api.to_freeze = None
            os.kill(pid, signal.SIGSTOP)
            Api.may_arrive.wait(DEADLINE_SECONDS)
        if self.store(lease):
            self._respond(201, self.lease)
        else:
            self._respond(409, {"message": "the object has been modified"})

    def _respond(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        config = {
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        yield tmp_path / "kubeconfig"
        server.shutdown()


def state(pid: int) -> str:
    """Return the state of a process in the kernel; T means stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_holder_resumed_after_expiry_exits_without_a_write(
    kubeconfig: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    log = tmp_path / "log"
    with log.open("wb") as out:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stderr=out)
    try:
        until(lambda: len(Api.writes) > 100, "writes of the holder")
        Api.to_freeze = holder.pid
        until(lambda: state(holder.pid) == "T", "a frozen holder")
        frozen, renewed = time.monotonic(), Api.lease["spec"]["renewTime"]
        until(lambda: time.monotonic() > frozen + 7, "the end of the Lease's duration")
        assert (state(holder.pid), Api.lease["spec"]["renewTime"]) == ("T", renewed)
        # Another operator holds the Lease now.
        spec = {**Api.lease["spec"], "holderIdentity": "other", "renewTime": "later"}
        assert Api.store({**Api.lease, "spec": spec})
        Api.may_arrive.set()
        holder.send_signal(signal.SIGCONT)
        assert holder.wait(DEADLINE_SECONDS) == 1
        # Requests sent before the stop may still arrive.
        assert [started for started in Api.writes if started > frozen] == []
        assert Api.lease["spec"]["holderIdentity"] == "other"
    finally:
        holder.kill()
        holder.wait()
    assert "the operator exits" in log.read_text()
