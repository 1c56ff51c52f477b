"""A holder of the Lease that was frozen for too long writes nothing when it wakes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from controlplane.operating import until
from specdec.controller.leader_election import LostError
from specdec.controller.standby import fence
from unit.controller.clock import run
from unit.controller.leases import SECONDS, Server, candidate, now

# A holder that writes as often as it can.
HOLDER = """
import asyncio
import time
from specdec.controller import standby
from specdec.cluster.login import connect
from specdec.controller.leader_election import Lease

async def write(cluster, wait):
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    body["metadata"] = {"name": "x", "namespace": "ns"}
    while True:
        await cluster.create({**body, "data": {"begun": time.monotonic()}})
        await asyncio.sleep(wait)

async def main():
    async with connect() as cluster:
        lease = Lease(cluster, "system", "operator", "me", seconds=6)
        async with standby.leading(lease, 0):
            writer = cluster.fenced(standby.fence(lease))
            await asyncio.gather(*(write(writer, wait / 1000) for wait in range(64)))

asyncio.run(main())
"""


async def scenario() -> None:
    server = Server(takes=0.1)
    lease = candidate(server, "one")
    ended: list[float] = []
    check = fence(lease, end=lambda: ended.append(now()))
    await lease.acquire()
    check()
    lease._renewed = now() - SECONDS * 2 / 3 + 0.01
    check()
    lease._renewed = now() - SECONDS * 2 / 3
    with pytest.raises(LostError):
        check()
    assert ended == [now()]


def test_the_fence_closes_before_another_may_take_the_lease() -> None:
    run(scenario())


class Api(BaseHTTPRequestHandler):
    """Keeps one Lease, and when each other write was begun, in seconds of the machine's clock."""

    protocol_version = "HTTP/1.1"
    lease: ClassVar[dict[str, Any]] = {}
    writes: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        self._answer(200 if self.lease else 404, self.lease or {"message": "not found"})

    def do_POST(self) -> None:
        self._write()

    def do_PUT(self) -> None:
        self._write()

    def _write(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["kind"] == "Lease":
            self.lease.update(body)
        else:
            self.writes.append(body["data"]["begun"])
        self._answer(201, body)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
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
    """The state of a process as the kernel has it; T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_a_holder_resumed_after_its_time_ends_without_a_write(
    kubeconfig: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    log = tmp_path / "log"
    with log.open("wb") as out:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stderr=out)
    try:
        until(lambda: len(Api.writes) > 100, "a holder that writes")
        holder.send_signal(signal.SIGSTOP)
        until(lambda: state(holder.pid) == "T", "a frozen holder")
        began, renewed = time.monotonic(), Api.lease["spec"]["renewTime"]
        until(lambda: time.monotonic() > began + 7, "the end of the Lease's time")
        assert (state(holder.pid), Api.lease["spec"]["renewTime"]) == ("T", renewed)
        # Another holds it now.
        Api.lease["spec"] |= {"holderIdentity": "other", "renewTime": "later"}
        holder.send_signal(signal.SIGCONT)
        assert holder.wait(30) == 1
        # What was begun before the stop may still arrive: nobody can call it back.
        assert [begun for begun in Api.writes if begun > began] == []
        assert Api.lease["spec"]["holderIdentity"] == "other"
    finally:
        holder.kill()
        holder.wait()
    assert "the operator ends" in log.read_text()
