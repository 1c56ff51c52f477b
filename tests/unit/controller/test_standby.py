"""A standby answers its probe, and a holder that loses the Lease exits."""

import asyncio
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from controlplane.operating import Operator, until
from specdec.cluster import Rejected
from specdec.controller.leader_election import Lease
from specdec.controller.standby import hold_lease, single_replica, unique_identity
from support.fake_cluster import FakeCluster


def is_leader() -> bool:
    return REGISTRY.get_sample_value("specdec_operator_leader") == 1


def held_by(holder: str) -> FakeCluster:
    """Return an API server whose Lease lasts an hour without renewals."""
    server = FakeCluster()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    server.put({"kind": "Lease", "metadata": {"name": "operator"}, "spec": spec})
    return server


def candidate(server: FakeCluster) -> Lease:
    return Lease(server, "system", "operator", "me", duration=6)


async def wait_until(check: Callable[[], bool], description: str) -> None:
    await asyncio.to_thread(until, check, description)


async def test_standby_becomes_active_and_releases_the_lease() -> None:
    server, done = held_by("other"), asyncio.Event()
    spec = server.objects["Lease", "operator"]["spec"]

    async def operate() -> None:
        async with hold_lease(candidate(server), exit_now=pytest.fail):
            await done.wait()

    task = asyncio.create_task(operate())
    await wait_until(lambda: ("get", "Lease", "operator") in server.calls, "a read of the Lease")
    assert not is_leader()
    assert server.writes() == []
    spec["holderIdentity"] = ""
    await wait_until(is_leader, "a leader")
    done.set()
    await task
    assert not is_leader()
    assert server.objects["Lease", "operator"]["spec"]["holderIdentity"] == ""


async def test_process_exits_with_one_line_when_the_lease_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, exited = held_by(""), asyncio.Event()
    async with hold_lease(candidate(server), exit_now=exited.set):
        assert is_leader()
        server.objects["Lease", "operator"]["spec"]["holderIdentity"] = "other"
        async with asyncio.timeout(30):
            await exited.wait()
    assert server.objects["Lease", "operator"]["spec"]["holderIdentity"] == "other"
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == [
        "the operator exits: it lost Lease system/operator: other holds it"
    ]


async def test_forbidden_lease_ends_the_standby() -> None:
    server = FakeCluster()
    server.fail["create", "Lease"] = Rejected(403, "Lease operator", "forbidden")
    with pytest.raises(Rejected, match="forbidden"):
        async with hold_lease(candidate(server), exit_now=pytest.fail):
            raise AssertionError("active without the Lease")


async def test_single_replica_is_active() -> None:
    async with single_replica():
        assert is_leader()
    assert not is_leader()


class _ApiServer(BaseHTTPRequestHandler):
    """An API server with the resource definition, and a Lease that another operator holds."""

    RESPONSES: ClassVar[dict[str, Any]] = {
        "/apis": {"groups": [{"name": "specdec.dev"}]},
        "/apis/specdec.dev/v1alpha1": {"resources": [{"kind": "SpeculativeModel"}]},
        "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator": {
            "metadata": {"name": "operator", "namespace": "system"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600},
        },
    }
    requested: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.requested.add(self.path)
        text = json.dumps(self.RESPONSES[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, *_: Any) -> None:
        return


@pytest.mark.slow
def test_stopped_standby_exits_with_0_and_has_read_only_the_lease(
    tmp_path: Path,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer) as server:
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
    log = operator.log.read_text()
    assert "standing by: other holds Lease system/operator" in log
    assert "Traceback" not in log
    assert "Unclosed" not in log
    assert _ApiServer.requested == set(_ApiServer.RESPONSES)


def test_identities_are_unique() -> None:
    assert unique_identity() != unique_identity()
