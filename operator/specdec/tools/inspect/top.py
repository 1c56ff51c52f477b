"""Read the metrics of every serving pod at intervals, for `specdec top`.

`Watch.read` returns one row per pod. A pod whose metrics cannot be read has an error in its row;
the other rows are unaffected.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.client.errors import ClientError, RefusedError, UnreachableError
from specdec.cluster import Cluster, ClusterError, Missing, Transient
from specdec.pipeline.observed import pod_ready
from specdec.tools.inspect import session
from specdec.tools.inspect.figures import Figures, Reading, figures, reading
from specdec.tools.inspect.status import pod_problem
from specdec.triton.launch import PORTS

Json = dict[str, Any]
FORMAT = "specdec.dev/top/v1"
_METRICS = "metrics"
_MAX_CONCURRENT = 16
_SERVERS = f"{names.COMPONENT} in ({', '.join(names.SERVERS.values())})"


@dataclass(frozen=True)
class Row:
    """One pod and its figures.

    Attributes:
        model: the SpeculativeModel that it serves.
        server: its component label: the server of the target or of the draft.
        state: `Ready`, or why it is not.
        figures: None if its metrics were not read.
        error: why the metrics of a ready pod could not be read.
    """

    namespace: str
    model: str
    pod: str
    server: str
    state: str
    figures: Figures | None = None
    error: ClientError | None = None

    def as_json(self) -> Json:
        """The row with its figures, which are null where there are none."""
        fields = {
            "namespace": self.namespace,
            "model": self.model,
            "pod": self.pod,
            "server": self.server,
            "state": self.state,
            "error": None if self.error is None else str(self.error),
        }
        return fields | (self.figures or Figures()).as_json()


class Watch:
    """The serving pods of one SpeculativeModel, of a namespace, or of the whole cluster.

    Without a name and a namespace, these are the pods of the whole cluster.

    Attributes:
        last_error: why the last read returned old rows, in one sentence; None if they are new.
    """

    def __init__(self, cluster: Cluster, namespace: str | None, name: str | None) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._limiter = asyncio.Semaphore(_MAX_CONCURRENT)
        self._readings: dict[str, Reading] = {}
        self._rows: list[Row] = []
        self.last_error: str | None = None

    async def read(self, *, keep_last: bool = False) -> list[Row]:
        """One row per pod, with the figures for the time since the last read.

        Args:
            keep_last: return the last rows again if an error may be temporary.

        Raises:
            BadRequestError: there is no such resource.
            UnreachableError: there is no serving pod.
            ClusterError: the API server does not respond, or forbids reading these pods.
        """
        try:
            pods = await self._pods()
        except (Transient, UnreachableError) as error:
            if not keep_last:
                raise
            self.last_error = str(error)
            return self._rows
        self.last_error = None
        rows = await asyncio.gather(*(self._row(pod) for pod in pods), return_exceptions=True)
        for row in rows:
            if isinstance(row, BaseException):
                raise row
        self._rows = [row for row in rows if isinstance(row, Row)]
        live = {pod["metadata"]["uid"] for pod in pods}
        self._readings = {uid: item for uid, item in self._readings.items() if uid in live}
        return self._rows

    async def _pods(self) -> list[Json]:
        of_model = f",{names.MODEL}={self._name}" if self._name else f",{names.MODEL}"
        selector = f"{names.MANAGED_BY}={names.MANAGER},{_SERVERS}{of_model}"
        pods = await self._cluster.list("v1", "Pod", self._namespace, selector)
        if pods:
            return sorted(pods, key=_sort_key)
        if self._name and self._namespace:
            await session.resource(self._cluster, self._namespace, self._name)
        model = f"SpeculativeModel {self._name}" if self._name else "any SpeculativeModel"
        where = f"namespace {self._namespace}" if self._namespace else "any namespace"
        raise UnreachableError(f"no pod serves {model} in {where}: specdec status shows why")

    async def _row(self, pod: Json) -> Row:
        """Read one pod; raises an error that concerns all pods, such as a missing permission."""
        meta = pod["metadata"]
        labels = meta["labels"]
        namespace, name = meta["namespace"], meta["name"]
        identity = (namespace, labels.get(names.MODEL, ""), name)
        server, state = labels[names.COMPONENT], _state(pod)
        if pod.get("status", {}).get("phase") != "Running":
            return Row(*identity, server, state)
        before = self._readings.pop(meta["uid"], None)
        try:
            async with self._limiter:
                page = await self._cluster.pod_metrics(namespace, name, metrics_port(pod))
            current = reading(page, time.monotonic())
        except (Transient, Missing, RefusedError) as error:
            # A server that is still loading has no metrics yet, as its state shows.
            shown = _metrics_error(error, pod) if state == "Ready" else None
            return Row(*identity, server, state, error=shown)
        self._readings[meta["uid"]] = current
        return Row(*identity, server, state, figures(before, current))


def metrics_port(pod: Json) -> int:
    """The port of a serving pod's metrics, by its name; that of Triton if no port has the name."""
    ports = (port for item in pod["spec"].get("containers", ()) for port in item.get("ports", ()))
    own = (port["containerPort"] for port in ports if port.get("name") == _METRICS)
    return next(own, PORTS[_METRICS])


def _metrics_error(error: ClusterError | RefusedError, pod: Json) -> ClientError:
    name = pod["metadata"]["name"]
    if isinstance(error, RefusedError):
        return RefusedError(f"Pod {name}: {error}")
    if isinstance(error, Missing):
        return UnreachableError(
            f"Pod {name} has no metrics at port {metrics_port(pod)}: {error.message}"
        )
    return session.client_error(error)


def _state(pod: Json) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if pod_ready(pod):
        return "Ready"
    phase = str(pod.get("status", {}).get("phase", "Pending"))
    return pod_problem(pod).partition(":")[0] or ("Starting" if phase == "Running" else phase)


def _sort_key(pod: Json) -> tuple[str, str, str]:
    meta = pod["metadata"]
    return meta["namespace"], meta["labels"].get(names.MODEL, ""), meta["name"]
