"""Run the matrix: serve each entry, send load to it, keep logs and metrics, judge it, clean up.

The command line calls `run`. The output folder has the state of every entry, so an interrupted run
continues where it stopped: finished entries are not run again, and a resource that exists is used.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from specdec.api.model import API_VERSION, KIND
from specdec.client.errors import RefusedError, UnreachableError
from specdec.cluster import Rejected, Transient
from specdec.tools.certify import figures, resources
from specdec.tools.certify.folder import Folder
from specdec.tools.certify.judgement import judge
from specdec.tools.certify.live import Live
from specdec.tools.certify.matrix import Entry
from specdec.tools.certify.progress import EntryLimits, State, history, state
from specdec.tools.certify.request import CertifyRequest
from specdec.tools.certify.timing import stages
from specdec.tools.inspect import snapshot

Json = dict[str, Any]
_RESOURCE = (API_VERSION, KIND)
_CLAIM = ("v1", "PersistentVolumeClaim")
# How long a run waits for an unreachable API server, and for the deletion of an entry.
_PATIENCE_SECONDS = 600.0
# HTTP statuses: the caller lacks a right, or the namespace is missing. No entry could be created.
_FATAL_STATUSES = frozenset({401, 403, 404})


class Reporter(Protocol):
    """What the terminal shows of a run."""

    def started(self, entry: Entry, *, resumed: bool) -> None:
        """An entry starts, or its resource is still there from an interrupted run."""

    def step(self, entry: Entry, message: str) -> None:
        """An entry waits for something else than before."""

    def ended(self, entry: Entry, result: Json, *, earlier: bool) -> None:
        """An entry has its result; `earlier` is true if an interrupted run wrote it."""


@dataclass(frozen=True)
class RunPlan:
    """What a run does.

    Attributes:
        id: identifies the run; part of the labels of everything it creates.
        request: the user's options.
        entries: the matrix.
        limits: the limits of each entry.
        keep: keep the claim, and suspend the resources instead of deleting them.
        retry: run failed entries again.
        operator_namespace: where the operator runs.
        clock: the present time, in UTC.
    """

    id: str
    request: CertifyRequest
    entries: Sequence[Entry]
    limits: EntryLimits
    keep: bool = False
    retry: bool = False
    operator_namespace: str = "specdec-system"
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def now(self) -> str:
        """The present time as RFC 3339."""
        return self.clock().isoformat(timespec="seconds").replace("+00:00", "Z")


async def run(live: Live, folder: Folder, plan: RunPlan, reporter: Reporter) -> None:
    """Run all entries that are tried and have no result yet; the results are in the folder.

    Raises:
        BadRequestError: an object of a needed name exists, and the run did not create it.
        RefusedError: the caller lacks a right.
        UnreachableError: the API server does not respond.
    """
    tried = [entry for entry in plan.entries if not entry.not_tried]
    open_entries = [entry for entry in tried if _open(folder.entry(entry.name), plan)]
    if open_entries and plan.request.claim is None:
        await live.apply(resources.claim(plan.request, live.namespace, plan.id))
    for entry in tried:
        earlier = folder.entry(entry.name)
        if entry in open_entries:
            await _Attempt(live, folder, plan, entry, reporter).run(earlier)
        elif earlier is not None:
            await _clean(live, folder, plan, entry, earlier)
            reporter.ended(entry, earlier, earlier=True)
    if not plan.keep and plan.request.claim is None:
        await live.remove(_CLAIM, resources.CLAIM, plan.id, _PATIENCE_SECONDS)


def _open(earlier: Json | None, plan: RunPlan) -> bool:
    """Whether an entry has no result, or one that is to be replaced."""
    outcome = (earlier or {}).get("outcome")
    return outcome not in ("passed", "failed") or (plan.retry and outcome == "failed")


async def _clean(live: Live, folder: Folder, plan: RunPlan, entry: Entry, result: Json) -> None:
    """Delete the resource of a finished entry, or suspend it to keep it."""
    if result.get("cleaned"):
        return
    name = resources.resource_name(entry.name)
    if plan.keep:
        spec = {**entry.spec, "suspend": True}
        body = resources.resource(entry.name, live.namespace, spec, plan.id)
        if await live.resource(entry.name) is not None:
            await live.apply(body)
    elif not await live.remove(_RESOURCE, name, plan.id, _PATIENCE_SECONDS):
        result["notes"].append(f"the resource or a pod of {name} still exists after its deletion")
    folder.write_entry(entry.name, {**result, "cleaned": True})


class _Attempt:
    """One entry: from its resource to its result."""

    def __init__(
        self, live: Live, folder: Folder, plan: RunPlan, entry: Entry, reporter: Reporter
    ) -> None:
        self._live, self._folder, self._plan = live, folder, plan
        self._entry, self._reporter = entry, reporter
        self._body: Json = {}
        self._state: Json = {}

    async def run(self, earlier: Json | None) -> None:
        """Run or resume the entry, and write its result."""
        entry, plan = self._entry, self._plan
        resumed = (earlier or {}).get("outcome") == "running"
        self._state = (earlier or {}) if resumed else {}
        if not self._state:
            self._state = {
                "entry": entry.name,
                "outcome": "running",
                "startedAt": plan.now(),
                "history": [],
            }
        self._reporter.started(entry, resumed=resumed)
        self._folder.write_entry(entry.name, self._state)
        end = await self._serve()
        throughput, problem = None, end if end.problem else ""
        if not end.problem:
            try:
                throughput = figures.benchmark(self._body) or await self._throughput()
            except RefusedError as error:
                problem = str(error)
        self._reporter.step(entry, "keeps logs and metrics")
        source = snapshot.SnapshotSource(
            self._live.cluster, self._live.namespace, plan.operator_namespace
        )
        kept = await snapshot.read(source, resources.resource_name(entry.name))
        baseline = (self._folder.entry(entry.baseline) or {}) if entry.baseline else {}
        verdict = judge(self._body, throughput, baseline.get("throughput"), problem)
        result = {
            **self._state,
            "outcome": verdict.outcome,
            "sentence": verdict.sentence,
            "condition": list(verdict.condition) if verdict.condition else None,
            "endedAt": plan.now(),
            "stages": stages(self._body, plan.now()),
            "status": self._body.get("status", {}),
            "throughput": throughput,
            "servers": figures.pods(kept.metrics),
            "notes": kept.notes,
            "logs": self._keep(kept),
        }
        self._folder.write_entry(entry.name, result)
        self._reporter.step(entry, "removes its resource")
        await _clean(self._live, self._folder, plan, entry, result)
        self._reporter.ended(entry, result, earlier=False)

    async def _serve(self) -> State:
        """Create the resource, or use the one that exists, and wait until it is done."""
        entry, live = self._entry, self._live
        body = resources.resource(entry.name, live.namespace, entry.spec, self._plan.id)
        self._body = {**body, "metadata": {**body["metadata"], "creationTimestamp": ""}}
        self._body["metadata"]["creationTimestamp"] = self._state["startedAt"]
        try:
            await self._create(body)
        except Rejected as error:
            if error.code in _FATAL_STATUSES:
                raise
            return State(True, problem=str(error))
        message, unreachable_since = "", None
        started = datetime.fromisoformat(self._state["startedAt"])
        while True:
            now = self._plan.clock()
            try:
                current = await live.resource(entry.name)
            except Transient as error:
                unreachable_since = unreachable_since or now
                if (now - unreachable_since).total_seconds() > _PATIENCE_SECONDS:
                    raise UnreachableError(str(error)) from error
                await asyncio.sleep(live.interval)
                continue
            unreachable_since = None
            if current is None:
                return State(True, problem="the resource was deleted during its run")
            self._body = current
            self._remember()
            reached = state(current, self._state["history"], started, now, self._plan.limits)
            if reached.done:
                return reached
            if reached.message != message:
                message = reached.message
                self._reporter.step(entry, message)
            await asyncio.sleep(live.interval)

    async def _create(self, body: Json) -> None:
        """Apply the resource, unless an equal one of this run exists already."""
        live, entry = self._live, self._entry
        current = await live.resource(entry.name)
        if current is not None and self._usable(current, body):
            return
        if current is not None:
            name = body["metadata"]["name"]
            await live.remove(_RESOURCE, name, self._plan.id, _PATIENCE_SECONDS)
        await live.apply(body)

    def _usable(self, current: Json, body: Json) -> bool:
        """Whether a resource belongs to this attempt: same spec, and not being deleted."""
        meta = current["metadata"]
        digest = body["metadata"]["annotations"][resources.SPEC]
        return (
            not meta.get("deletionTimestamp")
            and meta.get("labels", {}).get(resources.RUN) == self._plan.id
            and meta.get("annotations", {}).get(resources.SPEC) == digest
            # A failed entry that is run again starts with a new resource.
            and bool(self._state["history"] or not self._plan.retry)
        )

    def _remember(self) -> None:
        """Add what changed to the history, and keep it in the folder."""
        past = self._state["history"]
        self._state["history"] = history(past, self._body, self._plan.now())
        if len(self._state["history"]) > len(past):
            self._folder.write_entry(self._entry.name, self._state)

    async def _throughput(self) -> Json:
        """Send load to a service that the operator does not benchmark, from inside the cluster."""
        self._reporter.step(self._entry, "sends load to the service")
        image = await self._live.operator_image(resources.resource_name(self._entry.name))
        job = resources.throughput_job(self._body, image, self._plan.request, self._plan.id)
        result = await self._live.job_result(job)
        throughput: Json = result["throughput"]
        return throughput

    def _keep(self, kept: snapshot.Snapshot) -> list[str]:
        """Write the files of the entry; returns the paths of the logs."""
        folder, name = self._folder, self._entry.name
        meta = {k: v for k, v in self._body["metadata"].items() if k != "managedFields"}
        folder.write_file(name, "resource.json", {**self._body, "metadata": meta})
        folder.write_file(name, "status.json", kept.status)
        folder.write_file(name, "events.json", {"events": kept.events})
        for pod, page in sorted(kept.metrics.items()):
            folder.write_file(name, f"metrics/{pod}.txt", page)
        return [
            folder.write_file(name, f"logs/{pod}.log", log)
            for pod, log in sorted(kept.logs.items())
        ]
