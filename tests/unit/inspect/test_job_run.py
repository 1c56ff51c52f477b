"""The messages while a Job waits for a node."""

from typing import Any

import pytest
from typing_extensions import override

from specdec.cluster import Rejected
from specdec.tools.inspect import job_run
from support.fake_cluster import FakeCluster

Json = dict[str, Any]
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "lab"},
}
SCHEDULING = {"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes fit"}


class Cluster(FakeCluster):
    """A Job whose pod starts with each of the given statuses, and then ends."""

    def __init__(self, *statuses: Json) -> None:
        super().__init__()
        self.statuses = [*statuses]
        self.warnings: list[Json] = []
        self.allowed = True

    @override
    async def create(self, body: Any, manager: str = "specdec") -> Json:
        return JOB

    @override
    async def get(self, api_version: str, kind: str, namespace: Any, name: str) -> Json:
        done = [] if self.statuses else [{"type": "Complete", "status": "True"}]
        return {**JOB, "status": {"conditions": done}}

    @override
    async def list(
        self, api_version: str, kind: str, namespace: Any, selector: str = ""
    ) -> list[Json]:
        if kind == "Event":
            if not self.allowed:
                raise Rejected(403, "events", "no right to list them")
            return self.warnings
        ended = {"containerStatuses": [{"state": {"terminated": {"message": '{"a": 1}'}}}]}
        status = self.statuses.pop(0) if self.statuses else ended
        stamp = "2026-01-01T00:00:00Z"
        return [
            {"metadata": {"name": "p", "uid": "p", "creationTimestamp": stamp}, "status": status}
        ]


def warning(note: str, at: str, pod: str = "p") -> Json:
    regarding = {"name": pod}
    return {
        "type": "Warning",
        "reason": "FailedMount",
        "note": note,
        "eventTime": at,
        "regarding": regarding,
    }


async def reported(cluster: Cluster) -> list[str]:
    messages: list[str] = []
    await job_run.run(cluster, JOB, 0.0, messages.append)
    return messages


async def test_reason_of_a_pending_pod_is_reported_once() -> None:
    waits = {"phase": "Pending", "conditions": [SCHEDULING]}
    runs = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    assert await reported(Cluster(waits, waits, runs)) == [
        "Job j: pod p cannot be scheduled: 0/1 nodes fit",
        "Job j runs since 2026-01-01T00:00:00Z",
    ]


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        (True, "pod p of Job j starts; FailedMount: volume is in use"),
        (False, "pod p of Job j starts"),
    ],
)
async def test_newest_warning_of_a_pending_pod_is_reported(allowed: bool, message: str) -> None:
    cluster = Cluster({"phase": "Pending"})
    cluster.allowed = allowed
    cluster.warnings = [
        warning("volume is in use", "2026-01-01T00:00:02Z"),
        warning("not attached", "2026-01-01T00:00:01Z"),
        warning("other pod", "2026-01-01T00:00:03Z", "q"),
    ]
    assert await reported(cluster) == [message]
