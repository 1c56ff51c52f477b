"""Logs of a snapshot: from every container that has started; long logs only have their end."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from typing_extensions import override

from specdec.cluster import LOG_BYTES
from specdec.tools.inspect import snapshot
from specdec.tools.inspect.session import logged_in
from support.fake_api import Api, pod
from unit.inspect.recorded import JOBS, PODS, record

LINE = "x" * 2047


class LongLogs(Api):
    """Drops the end of a log, as a kubelet does with limitBytes."""

    lines = 1000

    @override
    def respond(self, address: str) -> tuple[int, bytes]:
        parts = urlsplit(address)
        if not parts.path.endswith("/log"):
            return super().respond(address)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.seen.append((query["container"], query.get("previous", "")))
        last = [f"{LINE}\n" for _ in range(self.lines - 1)] + ["the last line\n"]
        text = "".join(last[-int(query["tailLines"]) :])
        return 200, text[: int(query["limitBytes"])].encode()


@pytest.fixture
def api() -> LongLogs:
    api = LongLogs()
    record(api)
    api.objects[JOBS] = []
    api.objects["/apis/events.k8s.io/v1/namespaces/lab/events"] = []
    api.objects["/api/v1/namespaces/operators/pods"] = []
    return api


def read() -> snapshot.Snapshot:
    async def with_login() -> snapshot.Snapshot:
        async with logged_in() as session:
            source = snapshot.SnapshotSource(session.cluster, "lab", "operators")
            return await snapshot.read(source, "pair")

    return asyncio.run(with_login())


def test_started_containers_have_logs(api: LongLogs, login: Path) -> None:
    api.lines = 3
    api.objects[PODS] = [
        pod(
            "pair-0",
            "verify",
            initContainerStatuses=[{"name": "check", "state": {"terminated": {}}}],
            containerStatuses=[
                {"name": "server", "state": {"running": {}}, "restartCount": 1},
                {"name": "openai", "state": {"waiting": {"reason": "PodInitializing"}}},
            ],
        )
    ]
    kept = read()
    assert set(kept.logs) == {"pair-0-check", "pair-0-server", "pair-0-server-previous"}
    requests = [pair for pair in api.seen if "/" not in pair[0]]
    assert requests == [("check", ""), ("server", ""), ("server", "true")]
    assert not [note for note in kept.notes if "pair-0" in note]


def test_end_of_a_long_log_is_kept(api: LongLogs, login: Path) -> None:
    status = {"name": "server", "state": {"running": {}}}
    api.objects[PODS] = [pod("pair-0", "verify", containerStatuses=[status])]
    log = read().logs["pair-0"]
    assert log.endswith("the last line\n")
    assert LOG_BYTES / 4 < len(log) < LOG_BYTES
