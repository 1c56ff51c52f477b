"""The containers of a pod that have a log, by the status that the kubelet reports."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class ContainerRun:
    """One run of a container; each restart begins another run.

    Attributes:
        uid: the uid of its pod.
        restarts: how many runs were before this one.
        running: False if this run has ended.
        label: its name in output: the pod's, then the container's if the pod has several.
    """

    namespace: str
    pod: str
    uid: str
    name: str
    restarts: int
    running: bool
    label: str

    @property
    def run(self) -> tuple[str, str, int]:
        """Identifies the run in the cluster."""
        return self.uid, self.name, self.restarts


def started(pod: Json) -> list[ContainerRun]:
    """The containers of a pod that have started, init containers first."""
    meta, status = pod["metadata"], pod.get("status", {})
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return [
        ContainerRun(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            item["name"],
            int(item.get("restartCount", 0)),
            "running" in item.get("state", {}),
            meta["name"] if len(statuses) == 1 else f"{meta['name']}/{item['name']}",
        )
        for item in statuses
        # After a crash, a container waits, and its log is that of the last run.
        if "waiting" not in item.get("state", {}) or item.get("lastState")
    ]
