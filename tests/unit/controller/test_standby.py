"""A replica that stands by answers its probe, and one that loses the Lease ends."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from controlplane.operating import Operator, free_port, until
from specdec.cluster import Rejected
from specdec.controller.leader_election import Lease
from specdec.controller.standby import alone, identity, leading
from unit.controller.fakes import FakeCluster


def leads() -> bool:
    return REGISTRY.get_sample_value("specdec_operator_leader") == 1


def held_by(holder: str) -> FakeCluster:
    """An API server where nobody renews, but the holder has an hour."""
    server = FakeCluster()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    server.put({"kind": "Lease", "metadata": {"name": "operator"}, "spec": spec})
    return server


def candidate(server: FakeCluster) -> Lease:
    return Lease(server, "system", "operator", "me", seconds=6)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


async def seen(check: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(until, check, what)


async def test_it_stands_by_works_and_gives_the_lease_back() -> None:
    server, port, done = held_by("other"), free_port(), asyncio.Event()
    spec = server.objects["Lease", "operator"]["spec"]

    async def operate() -> None:
        async with leading(candidate(server), port, end=pytest.fail):
            # kopf opens the port next.
            assert not await asyncio.to_thread(answers, port)
            await done.wait()

    task = asyncio.create_task(operate())
    await seen(lambda: answers(port), "an answer to the probe")
    assert not leads()
    assert server.writes() == []
    spec["holderIdentity"] = ""
    await seen(leads, "a leader")
    done.set()
    await task
    assert not leads()
    assert server.objects["Lease", "operator"]["spec"]["holderIdentity"] == ""


async def test_who_loses_it_ends_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    server, ended = held_by(""), asyncio.Event()
    async with leading(candidate(server), 0, end=ended.set):
        assert leads()
        server.objects["Lease", "operator"]["spec"]["holderIdentity"] = "other"
        async with asyncio.timeout(30):
            await ended.wait()
    assert server.objects["Lease", "operator"]["spec"]["holderIdentity"] == "other"
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == [
        "the operator ends: it lost Lease system/operator: other has it"
    ]


async def test_who_may_not_have_it_does_not_stand_by() -> None:
    server, port = FakeCluster(), free_port()
    server.fail["create", "Lease"] = Rejected(403, "Lease operator", "forbidden")
    with pytest.raises(Rejected, match="forbidden"):
        async with leading(candidate(server), port, end=pytest.fail):
            raise AssertionError("it works without the Lease")
    assert not await asyncio.to_thread(answers, port)


async def test_the_only_operator_works() -> None:
    async with alone():
        assert leads()
    assert not leads()


class _Answers(BaseHTTPRequestHandler):
    """An API server that serves the definition, and a Lease that another holds."""

    SAYS: ClassVar[dict[str, Any]] = {
        "/apis": {"groups": [{"name": "specdec.dev"}]},
        "/apis/specdec.dev/v1alpha1": {"resources": [{"kind": "SpeculativeModel"}]},
        "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator": {
            "metadata": {"name": "operator", "namespace": "system"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600},
        },
    }
    asked: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.asked.add(self.path)
        text = json.dumps(self.SAYS[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, *_: Any) -> None:
        return


@pytest.mark.slow
def test_a_standby_that_is_told_to_stop_ends_well_and_has_asked_for_nothing(
    tmp_path: Path,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        operator = Operator(
            tmp_path / "kubeconfig", tmp_path / "log", SPECDEC_LEASE="system/operator"
        )
        with operator:
            assert operator.metric("specdec_operator_leader") == 0
            assert operator.stop() == 0
        server.shutdown()
    told = operator.log.read_text()
    assert "standing by: other holds Lease system/operator" in told
    assert "Traceback" not in told
    assert "Unclosed" not in told
    assert _Answers.asked == set(_Answers.SAYS)


def test_no_two_processes_have_one_name() -> None:
    assert identity() != identity()
