"""Ends or misleads the operator at every write; the cluster must reach the same state each time.

`make campaign NAME=crash_points` runs a resource from its creation over a change to its deletion,
in a cluster in memory. It counts the operator's writes. Then it repeats the run for each write and
each kind of fault: the operator is killed before the write or after it, or the answer is lost.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from specdec.api import names
from specdec.api.conditions import Transition
from specdec.api.model import KIND
from specdec.cluster import Transient
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings
from support.bench_report import Report
from support.fake_cluster import Json
from support.living_cluster import LivingCluster
from support.simulated_clock import run
from support.simulated_cluster import IMAGES, limits, resource, source

STEPS = ("creation", "change", "deletion")
FAULTS = ("killed before", "killed after", "answer lost")
PATIENCE, QUIET = 1800, 30
_SCALING = {
    "driver": "HPA",
    "minReplicas": 1,
    "maxReplicas": 3,
    "metrics": [{"type": "Pods", "name": "queue", "target": "2"}],
}
_NETWORKING = {
    "ingress": {"hosts": ["llm.example.com"], "className": "none"},
    "networkPolicy": {"mode": "Enabled", "from": [{"podSelector": {}}]},
}
# The resources and the changes of their specs.
WORKLOADS: Mapping[str, tuple[Json, Json]] = {
    "pair": (resource(), {"serving": {"streaming": False}, "verification": {"mode": "Disabled"}}),
    "target only": (resource("None"), {"suspend": True}),
    "another target": (
        resource(revisionHistoryLimit=0),
        {"target": {"source": source("newer"), "limits": limits()}},
    ),
    "all objects": (
        resource(serving={"scaling": _SCALING}, networking=_NETWORKING),
        {"serving": {}, "networking": {}},
    ),
}


class _Killed(BaseException):
    """The process of the operator has ended."""


class Faulty(LivingCluster):
    """A cluster with a garbage collector, and a fault at one of the operator's writes.

    Attributes:
        written: the number of writes so far.
        problems: states that the operator must never have reported.
    """

    def __init__(self, fault: str = "", at: int = 0) -> None:
        self.fault, self.at, self.written = fault, at, 0
        self.killed = asyncio.Event()
        self.problems: list[str] = []
        super().__init__()

    async def _write(self, write: Awaitable[Any]) -> Any:
        self.written += 1
        if self.written != self.at:
            return await write
        if self.fault == "killed before":
            write.close()  # type: ignore[attr-defined]
        else:
            await write
        if self.fault == "answer lost":
            raise Transient("the API server did not answer")
        self.killed.set()
        await asyncio.Event().wait()  # the process does nothing more
        raise AssertionError

    @override
    async def create(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json | None:
        return await self._write(super().create(body, manager))  # type: ignore[no-any-return]

    @override
    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        return await self._write(super().apply(body, manager))  # type: ignore[no-any-return]

    @override
    async def patch(
        self, target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]], manager: str
    ) -> Json:
        return await self._write(super().patch(target, operations, manager))  # type: ignore[no-any-return]

    @override
    async def delete(self, target: Mapping[str, Any]) -> bool:
        return await self._write(super().delete(target))  # type: ignore[no-any-return]

    @override
    async def apply_status(
        self, body: Mapping[str, Any], manager: str = names.MANAGER
    ) -> Json | None:
        self._judge(body["status"])
        return await self._write(super().apply_status(body, manager))  # type: ignore[no-any-return]

    @override
    async def record_event(self, regarding: Mapping[str, Any], transition: Transition) -> None:
        await self._write(super().record_event(regarding, transition))

    def _judge(self, status: Json) -> None:
        """Note a status that contradicts the cluster: nothing fails here, and Ready is served."""
        if status.get("phase") == "Failed":
            self.problems.append(f"false Failed: {status['conditions']}")
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
        servers = [item for (kind, _), item in self.objects.items() if kind == "Deployment"]
        if ready and not (servers and all(map(_available, servers))):
            self.problems.append("false Ready")

    async def collect_garbage(self) -> None:
        """Delete what belongs to no resource, for ever."""
        while True:
            await asyncio.sleep(0.5)
            for (kind, name), item in list(self.objects.items()):
                owners = item["metadata"].get("ownerReferences")
                pod = kind in ("Pod", "EndpointSlice")
                if kind != KIND and (owners or pod) and (KIND, "pair") not in self.objects:
                    self.remove(kind, name)


def _available(deployment: Json) -> bool:
    status = deployment.get("status", {})
    current = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return current and bool(status.get("availableReplicas"))


@dataclass
class Life:
    """The states of a cluster after creation, change and deletion of a resource."""

    cluster: Faulty
    states: list[Json] = field(default_factory=list)
    _runtime: Runtime | None = None

    async def lead(self, body: Json, change: Json) -> None:
        garbage = asyncio.create_task(self.cluster.collect_garbage())
        operator = asyncio.create_task(self._operate())
        self.cluster.put(body)
        await self._settle()
        live = self.cluster.objects[KIND, "pair"]
        self.cluster.put({**live, "spec": {**live["spec"], **change}})
        await self._settle()
        self.cluster.remove(KIND, "pair")
        await self._settle()
        for task in (operator, garbage):
            task.cancel()
        await asyncio.gather(operator, garbage, return_exceptions=True)

    async def _operate(self) -> None:
        """Run the operator, and a new one two seconds after it was killed."""
        while True:
            self.cluster.killed.clear()
            runtime = Runtime(Settings())
            runtime.attach(self.cluster, IMAGES)
            self.cluster.listeners[:] = [runtime.resource_changed]
            for (kind, _), item in list(self.cluster.objects.items()):
                if kind == KIND:
                    runtime.resource_changed(item)
            try:
                await self.cluster.killed.wait()
            finally:
                self.cluster.listeners.clear()
                assert runtime._queue is not None
                await runtime._queue.stop(0)
                await runtime.stop()
            await asyncio.sleep(2)

    async def _settle(self) -> None:
        """Wait until nothing has been written for a while, and keep the state."""
        for _ in range(PATIENCE // QUIET):
            before = self.cluster.written
            await asyncio.sleep(QUIET)
            if self.cluster.written == before and not self.cluster.killed.is_set():
                break
        else:
            self.cluster.problems.append("the operator does not stop writing")
        self.states.append(_state(self.cluster))


def _state(cluster: Faulty) -> Json:
    """The objects without what differs between two equal runs."""
    return {f"{kind} {name}": _stripped(item) for (kind, name), item in cluster.objects.items()}


_VARIES = {"resourceVersion", "creationTimestamp", "generation", "managedFields", "uid"}
_TIMES = {"lastTransitionTime", "observedGeneration", "startedAt", "checkedAt"}


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = value.items()
        return {key: _stripped(v) for key, v in kept if key not in _VARIES | _TIMES}
    return [_stripped(item) for item in value] if isinstance(value, list) else value


def live(workload: str, fault: str = "", at: int = 0) -> Life:
    """Run the life of a workload, with a fault at one write."""
    lives: list[Life] = []

    async def scenario() -> None:
        lives.append(Life(Faulty(fault, at)))
        await lives[0].lead(*WORKLOADS[workload])

    run(scenario())
    return lives[0]


def problems(workload: str, points: Callable[[int], Iterator[int]]) -> Iterator[list[str]]:
    """Yield the problems of each run: a false status, or another state than without a fault."""
    undisturbed = live(workload)
    assert undisturbed.states[-1] == {}, undisturbed.states[-1].keys()
    yield undisturbed.cluster.problems
    for at in points(undisturbed.cluster.written):
        for fault in FAULTS:
            disturbed = live(workload, fault, at)
            wrong = list(disturbed.cluster.problems)
            for step, actual, expected in zip(
                STEPS, disturbed.states, undisturbed.states, strict=True
            ):
                keys = actual.keys() | expected.keys()
                different = sorted(k for k in keys if actual.get(k) != expected.get(k))
                if different:
                    wrong.append(f"after the {step}: {', '.join(different)}")
            yield [f"{workload}, {fault} write {at}: {problem}" for problem in wrong]


def main() -> int:
    """Run the campaign; return 1 if a run ends in another state or reports a false one."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.crash_points", description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, help="(all)")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    runs = wrong = 0
    for workload in [options.workload] if options.workload else WORKLOADS:
        for messages in problems(workload, lambda writes: iter(range(1, writes + 1))):
            runs += 1
            wrong += bool(messages)
            for problem in messages:
                report.note(problem)
    report.figure("crash_points.runs", [runs], "runs")
    report.figure("crash_points.wrong", [wrong], "runs", goal=0)
    report.figure("crash_points.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
