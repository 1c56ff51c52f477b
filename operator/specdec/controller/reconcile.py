"""One reconcile of one resource: read, decide, apply, and write the status.

The work queue calls `Reconciler.reconcile` with the key of a resource. It never raises an
exception: every error is counted and logged, and the result determines the next try. A reconcile
keeps no intermediate state, so it can be repeated at any time.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.backends.facts import Images
from specdec.cluster import Cluster, ClusterError, Conflict, Rejected, Transient, metrics
from specdec.controller.apply import apply_decision, delete_child
from specdec.controller.children import live_object
from specdec.controller.decision_adjustments import (
    internal_error,
    invalid_spec,
    rejected_request,
    with_refusal,
    with_refusals,
)
from specdec.controller.observe import observe
from specdec.controller.queue import Key, Result
from specdec.controller.refusals import DefinitionNotReadyError, RefusedError
from specdec.controller.status_writer import Body, changes_status, is_progress, write_status
from specdec.pipeline import decide as pipeline
from specdec.pipeline.adjustments import with_replaced_pods
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Object, Observed, job_state
from specdec.pipeline.stage import SOON

logger = logging.getLogger(__name__)

Decide = Callable[[SpeculativeModel, Observed, Images], Decision]
# A refusal lasts until somebody changes a quota, a role or the cluster, which causes no event.
REFUSED_REQUEUE_AFTER = 60.0
# Fixed, because with exponential back-off the key would still wait when the definition is known.
NOT_READY_REQUEUE_AFTER = 3.0
# Pods start and log many times a minute. Their progress does not need a write each time.
PROGRESS_SECONDS = 5.0
_PACKAGE = Path(__file__).parents[1]


@dataclass
class Reconciler:
    """Brings one resource at a time closer to its spec.

    Per resource it remembers only the generation that the last event showed, the time of its last
    status write, and the location of the last internal error.
    """

    cluster: Cluster
    images: Images
    decide: Decide = pipeline.decide
    # Called when a resource has to be read live the next time.
    doubt: Callable[[Key], None] = lambda _: None
    _logged_errors: dict[Key, str] = field(default_factory=dict)
    _written: dict[Key, float] = field(default_factory=dict)
    _seen: dict[Key, tuple[str, int]] = field(default_factory=dict)

    def note(self, key: Key, uid: str, generation: int) -> None:
        """Remember the generation that an event of a resource has shown."""
        self._seen[key] = (uid, generation)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted resource."""
        self._seen.pop(key, None)
        self._written.pop(key, None)
        self._logged_errors.pop(key, None)
        metrics.MODELS.forget(key)

    async def reconcile(self, key: Key) -> Result:
        """Reconcile a resource; errors become a result and are counted and logged."""
        started = time.perf_counter()
        result, label = await self._reconcile_with_error_policy(key)
        metrics.RECONCILE_SECONDS.observe(time.perf_counter() - started)
        metrics.RECONCILES.labels(label).inc()
        return result

    async def _reconcile_with_error_policy(self, key: Key) -> tuple[Result, str]:
        """The result of a reconcile, and its label in the metrics."""
        try:
            requeue_after = await self._reconcile(key)
        except Conflict as error:
            logger.info("%s/%s: %s; requeueing", *key, error)
            self.doubt(key)
            return self._count_failure("conflict"), "conflict"
        except DefinitionNotReadyError as error:
            logger.info("%s/%s: %s; retrying in %g s", *key, error, NOT_READY_REQUEUE_AFTER)
            return Result(requeue_after=NOT_READY_REQUEUE_AFTER), "error"
        except Transient as error:
            logger.warning("%s/%s: %s; retrying", *key, error)
            return self._count_failure("transient"), "error"
        except Rejected as error:
            # A read or a write of the status was rejected, such as after a right was removed.
            logger.error("%s/%s: %s", *key, error)  # noqa: TRY400 - a traceback adds nothing
            self._count_failure("rejected")
            return Result(requeue_after=REFUSED_REQUEUE_AFTER), "rejected"
        except Exception as error:  # noqa: BLE001 - the result reports every defect
            self._log_internal_error(key, error)
            return self._count_failure("bug"), "bug"
        self._logged_errors.pop(key, None)
        return Result(requeue_after=requeue_after), "ok"

    async def _reconcile(self, key: Key) -> float | None:
        """Reconcile; returns `Result.requeue_after`, and puts unexpected errors into the status.

        Raises:
            ClusterError: a request failed.
        """
        namespace, name = key
        body = await self.cluster.get(API_VERSION, KIND, namespace, name)
        self._require_current(key, body)
        if body is None or body["metadata"].get("deletionTimestamp"):
            metrics.MODELS.forget(key)
            return None  # the garbage collector deletes the children by their owner references
        try:
            return await self._reconcile_body(key, body)
        except Rejected as error:
            if error.target != f"{KIND} {name}":  # the status itself may be what is rejected
                await self._report(key, body, rejected_request(body, str(error)))
            raise
        except ClusterError:
            raise
        except Exception as error:
            await self._report(key, body, internal_error(body, _location(error)))
            raise

    def _require_current(self, key: Key, body: Body | None) -> None:
        """Raise Conflict if a read is older than the last event, as from a server that lags."""
        uid, generation = self._seen.get(key, ("", 0))
        if body is None:
            # Once only: the event of a deletion may be lost while the watches start again.
            stale = self._seen.pop(key, None) is not None
        else:
            meta = body["metadata"]
            stale = meta["uid"] == uid and meta.get("generation", 1) < generation
        if stale:
            raise Conflict(f"the read of {KIND} {key[1]} is older than its last event")

    async def _reconcile_body(self, key: Key, body: dict[str, Any]) -> float | None:
        """Parse, observe, decide, apply, write the status, delete what it reports.

        Returns the same as `_reconcile`.
        """
        try:
            model = SpeculativeModel.parse(body)
        except ValidationError as error:
            await self._write_status(key, body, invalid_spec(body, error))
            return None
        observed = await observe(self.cluster, model)
        decision = self.decide(model, observed, self.images)
        if self.cluster.live is not self.cluster and _needs_live_reads(body, observed, decision):
            await self._require_unchanged(body)
            observed = await observe(self.cluster.live, model)
            decision = self.decide(model, observed, self.images)
        try:
            applied = await apply_decision(self.cluster, model, observed, decision)
        except RefusedError as error:
            await self._write_status(key, body, with_refusal(decision, error))
            return REFUSED_REQUEUE_AFTER
        decision = with_refusals(decision, applied.refusals)
        decision = with_replaced_pods(decision, applied.replaced_pods)
        if decision.requeue_after == SOON and not applied.refusals:
            return SOON
        if is_progress(body, decision) and (wait := self._seconds_until_write(key)) > 0:
            return min(wait, decision.requeue_after or wait)
        await self._write_status(key, body, decision)
        for ref in decision.delete_last:
            await delete_child(self.cluster, model, observed, ref)
        if applied.refusals:
            return min(REFUSED_REQUEUE_AFTER, decision.requeue_after or REFUSED_REQUEUE_AFTER)
        return decision.requeue_after

    def _seconds_until_write(self, key: Key) -> float:
        """How long the status of a resource stays as it is if only progress changes."""
        now = asyncio.get_running_loop().time()
        return self._written.get(key, now - PROGRESS_SECONDS) + PROGRESS_SECONDS - now

    async def _require_unchanged(self, body: Body) -> None:
        """Raise Conflict if the copy of a resource is older than the resource."""
        meta = body["metadata"]
        live = await self.cluster.live.get(API_VERSION, KIND, meta["namespace"], meta["name"])
        shown = live["metadata"] if live else {}
        if (shown.get("uid"), shown.get("generation")) != (meta["uid"], meta.get("generation")):
            raise Conflict(f"{KIND} {meta['name']} has changed since its last event")

    async def _write_status(self, key: Key, body: Body, decision: Decision) -> None:
        metrics.MODELS.set(key, decision.conditions, decision.status)
        if await write_status(self.cluster, body, decision) is not None:
            self._written[key] = asyncio.get_running_loop().time()

    async def _report(self, key: Key, body: Body, decision: Decision) -> None:
        """Put an error into the status, which would otherwise show an outdated state."""
        try:
            await self._write_status(key, body, decision)
        except ClusterError as failure:
            logger.warning("%s/%s: the status does not show the error: %s", *key, failure)

    def _count_failure(self, kind: str) -> Result:
        metrics.ERRORS.labels(kind).inc()
        return Result(failed=True)

    def _log_internal_error(self, key: Key, error: Exception) -> None:
        """Log the traceback once per resource and location, and one line for repetitions."""
        location = _location(error)
        if self._logged_errors.get(key) == location:
            logger.error("%s/%s: the same bug again: %s", *key, location)
            return
        self._logged_errors[key] = location
        logger.error("%s/%s: a bug in the operator", *key, exc_info=error)


def _needs_live_reads(body: Body, observed: Observed, decision: Decision) -> bool:
    """Whether a decision must not rest on copies.

    That is so if it deletes, because a copy may lack what exists. It is also so if it reports
    something while copies contradict each other: the Job has ended, and none of its pods has.
    """
    if any(
        live_object(observed, ref.kind, ref.name)
        for ref in (*decision.delete, *decision.delete_last)
    ):
        return True
    return any(
        job_state(job) != "Running" and not any(map(_has_ended, observed.pods_of(name)))
        for name, job in observed.jobs.items()
    ) and changes_status(body, decision)


def _has_ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _location(error: Exception) -> str:
    """An exception's type and source line, without its message, which may quote secrets."""
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost line of this package is more useful than a line inside a library.
    own = [frame for frame in frames if _PACKAGE in Path(frame.filename).parents]
    frame = (own or frames)[-1]
    file = Path(frame.filename)
    path = file.relative_to(_PACKAGE.parent) if own else file.name
    return f"{type(error).__name__} at {path}:{frame.lineno}"
