"""Looking at every serving pod, again and again."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.client.errors import ClientError, RefusedError, UnreachableError
from specdec.cluster import Cluster, ClusterError, Missing, Transient
from specdec.desired.front import TRITON
from specdec.inspect import session
from specdec.inspect.figures import Figures, Reading, figures, reading
from specdec.inspect.status import trouble
from specdec.pipeline.observed import pod_ready

Json = dict[str, Any]
FORMAT = "specdec.dev/top/v1"
# Every backend of this release answers behind Triton.
METRICS_PORT = TRITON.ports[TRITON.metrics]
_AT_ONCE = 16
_SERVERS = f"{names.COMPONENT} in ({', '.join(names.SERVERS.values())})"


@dataclass(frozen=True)
class Row:
    """One pod and what it does.

    Attributes:
        model: the SpeculativeModel that it serves.
        server: component label: whether it is the server of the target or of the draft.
        state: `Ready`, or why it is not.
        figures: None where the pod was not asked or did not answer.
        error: why a ready pod did not answer.
    """

    namespace: str
    model: str
    pod: str
    server: str
    state: str
    figures: Figures | None = None
    error: ClientError | None = None

    def as_json(self) -> Json:
        """The row with its figures, null where there are none."""
        told = {
            "namespace": self.namespace,
            "model": self.model,
            "pod": self.pod,
            "server": self.server,
            "state": self.state,
            "error": None if self.error is None else str(self.error),
        }
        return told | (self.figures or Figures()).as_json()


class Watch:
    """The serving pods of one SpeculativeModel, of a namespace or, with None, of all.

    Attributes:
        missed: why the last look saw nothing new, in one sentence; None if it did.
    """

    def __init__(self, cluster: Cluster, namespace: str | None, name: str | None) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._last: dict[str, Reading] = {}
        self._rows: list[Row] = []
        self.missed: str | None = None

    async def look(self, *, patient: bool = False) -> list[Row]:
        """One row a pod, with figures of the time since the last look.

        Raises:
            BadRequestError: there is no such resource.
            UnreachableError: there is no serving pod.
            ClusterError: the API server does not answer, or does not let these pods be read.
                A `patient` look tells the last rows instead where an answer may come later.
        """
        try:
            pods = await self._pods()
        except (Transient, UnreachableError) as error:
            if not patient:
                raise
            self.missed = str(error)
            return self._rows
        self.missed = None
        told = await asyncio.gather(*(self._row(pod) for pod in pods), return_exceptions=True)
        for one in told:
            if isinstance(one, BaseException):
                raise one
        self._rows = [one for one in told if isinstance(one, Row)]
        known = {pod["metadata"]["uid"] for pod in pods}
        self._last = {uid: last for uid, last in self._last.items() if uid in known}
        return self._rows

    async def _pods(self) -> list[Json]:
        mine = f",{names.MODEL}={self._name}" if self._name else f",{names.MODEL}"
        selector = f"{names.MANAGED_BY}={names.MANAGER},{_SERVERS}{mine}"
        found = await self._cluster.list("v1", "Pod", self._namespace, selector)
        if found:
            return sorted(found, key=_place)
        if self._name and self._namespace:
            await session.resource(self._cluster, self._namespace, self._name)
        of = f"SpeculativeModel {self._name}" if self._name else "any SpeculativeModel"
        where = f"namespace {self._namespace}" if self._namespace else "any namespace"
        raise UnreachableError(f"no pod serves {of} in {where}: specdec status tells why")

    async def _row(self, pod: Json) -> Row:
        """Ask one pod. Who may not read one may read none: that is raised, and told once."""
        meta = pod["metadata"]
        labels = meta["labels"]
        place = (meta["namespace"], labels.get(names.MODEL, ""), meta["name"])
        server, state = labels[names.COMPONENT], _state(pod)
        if pod.get("status", {}).get("phase") != "Running":
            return Row(*place, server, state)
        before = self._last.pop(meta["uid"], None)
        try:
            async with self._limit:
                page = await self._cluster.pod_metrics(place[0], place[2], METRICS_PORT)
            now = reading(page, time.monotonic())
        except (Transient, Missing, RefusedError) as error:
            # A server that still loads has no metrics yet, and its state says so.
            told = _words(error, place[2]) if state == "Ready" else None
            return Row(*place, server, state, error=told)
        self._last[meta["uid"]] = now
        return Row(*place, server, state, figures(before, now))


def _words(error: ClusterError | RefusedError, pod: str) -> ClientError:
    if isinstance(error, RefusedError):
        return RefusedError(f"Pod {pod}: {error}")
    if isinstance(error, Missing):
        return UnreachableError(
            f"Pod {pod} has no metrics at port {METRICS_PORT}: {error.message}"
        )
    return session.client_error(error)


def _state(pod: Json) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if pod_ready(pod):
        return "Ready"
    phase = str(pod.get("status", {}).get("phase", "Pending"))
    return trouble(pod).partition(":")[0] or ("Starting" if phase == "Running" else phase)


def _place(pod: Json) -> tuple[str, str, str]:
    meta = pod["metadata"]
    return meta["namespace"], meta["labels"].get(names.MODEL, ""), meta["name"]
