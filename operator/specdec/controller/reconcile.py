"""One reconcile: read the resource and its children, decide, act, report; one error policy."""

import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specdec import metrics
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.backends.facts import Images
from specdec.cluster import Cluster, ClusterError, Conflict, Rejected, Transient
from specdec.controller.apply import EarlyError, RefusedError, act
from specdec.controller.observe import observe
from specdec.controller.queue import Key, ReconcileResult
from specdec.controller.status_writer import (
    Body,
    broken,
    invalid,
    refused,
    report,
    rolling,
    without,
)
from specdec.pipeline import decide as pipeline
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Observed

logger = logging.getLogger(__name__)

Version = tuple[str, int]
"""Resource version and generation."""
Decide = Callable[[SpeculativeModel, Observed, Images], Decision]
# A refusal stays until somebody changes a quota, a role or the resource; no event tells us.
REFUSED_REQUEUE = 60.0
# Steady, for a growing back-off would add up to another half minute to the one it takes.
EARLY_REQUEUE = 3.0
_PACKAGE = Path(__file__).parents[1]


@dataclass
class Reconciler:
    """Brings one resource at a time closer to its spec.

    Of a resource it remembers only the version it wrote itself, to know its echo in the watch.
    """

    cluster: Cluster
    images: Images
    decide: Decide = pipeline.decide
    _bugs: dict[Key, str] = field(default_factory=dict)
    _written: dict[Key, Version] = field(default_factory=dict)

    def is_echo(self, key: Key, version: Version) -> bool:
        """Whether a watch event only shows our own status write.

        The generation must be the one the reconcile saw: a change of the spec that slipped in
        between read and write shows under our resource version when a watch starts anew.
        """
        return self._written.get(key) == version

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a deleted resource."""
        self._written.pop(key, None)
        self._bugs.pop(key, None)
        metrics.MODELS.forget(key)

    async def reconcile(self, key: Key) -> ReconcileResult:
        """Reconcile under the error policy: what failed is counted, told once, and backed off."""
        started = time.perf_counter()
        result, label = await self._guarded(lambda: self._reconcile(key), key)
        metrics.RECONCILE_SECONDS.observe(time.perf_counter() - started)
        metrics.RECONCILES.labels(label).inc()
        return result

    async def _reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next one, None where events are enough.

        Raises:
            ClusterError: a request failed.
        """
        namespace, name = key
        body = await self.cluster.get(API_VERSION, KIND, namespace, name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            metrics.MODELS.forget(key)
            return None  # children carry an owner reference: the API server collects them
        try:
            return await self._pass(key, body)
        except ClusterError:
            raise
        except Exception as error:
            await self._report_defect(key, body, error)
            raise

    async def _pass(self, key: Key, body: dict[str, Any]) -> float | None:
        """Parse, observe, decide, act and report; returns as `_reconcile`."""
        try:
            model = SpeculativeModel.parse(body)
        except ValidationError as error:
            await self._report(key, body, invalid(body, error))
            return None
        observed = await observe(self.cluster, model)
        decision = self.decide(model, observed, self.images)
        try:
            acted = await act(self.cluster, model, observed, decision)
        except RefusedError as error:
            await self._report(key, body, refused(decision, error))
            return REFUSED_REQUEUE
        decision = rolling(without(decision, acted.refusals), acted.rolling)
        await self._report(key, body, decision)
        if acted.refusals:
            return min(REFUSED_REQUEUE, decision.requeue_after or REFUSED_REQUEUE)
        return decision.requeue_after

    async def _report(self, key: Key, body: Body, decision: Decision) -> None:
        metrics.MODELS.see(key, decision.conditions, decision.status.get("engines", ()))
        written = await report(self.cluster, body, decision)
        if written is not None:
            generation = body["metadata"].get("generation", 1)
            self._written[key] = (written["metadata"]["resourceVersion"], generation)

    async def _report_defect(self, key: Key, body: Body, error: Exception) -> None:
        """Put an exception into the status, which otherwise would show an earlier state."""
        try:
            await self._report(key, body, broken(body, _place(error)))
        except ClusterError as refusal:
            logger.warning("%s/%s: the status does not show the defect: %s", *key, refusal)

    async def _guarded(
        self, work: Callable[[], Awaitable[float | None]], key: Key
    ) -> tuple[ReconcileResult, str]:
        try:
            requeue_after = await work()
        except Conflict as error:
            logger.info("%s/%s: %s; looking again", *key, error)
            return self._failed("conflict"), "conflict"
        except EarlyError as error:
            logger.info("%s/%s: %s; trying again in %g s", *key, error, EARLY_REQUEUE)
            return ReconcileResult(requeue_after=EARLY_REQUEUE), "error"
        except Transient as error:
            logger.warning("%s/%s: %s; trying again", *key, error)
            return self._failed("transient"), "error"
        except Rejected as error:
            # Of the resource itself or of a read: there may be no status to say it in.
            logger.error("%s/%s: %s", *key, error)  # noqa: TRY400 - the sentence says it all
            self._failed("rejected")
            return ReconcileResult(requeue_after=REFUSED_REQUEUE), "rejected"
        except Exception as error:  # noqa: BLE001 - the one place where bugs end
            self._tell_bug(key, error)
            return self._failed("bug"), "bug"
        self._bugs.pop(key, None)
        return ReconcileResult(requeue_after=requeue_after), "ok"

    def _failed(self, kind: str) -> ReconcileResult:
        metrics.ERRORS.labels(kind).inc()
        return ReconcileResult(failed=True)

    def _tell_bug(self, key: Key, error: Exception) -> None:
        """The traceback once per resource and place, one line after that."""
        mark = _place(error)
        if self._bugs.get(key) == mark:
            logger.error("%s/%s: again %s", *key, mark)
            return
        self._bugs[key] = mark
        logger.error("%s/%s: a bug in the operator", *key, exc_info=error)


def _place(error: Exception) -> str:
    """An exception's type and the line that raised it; its text may quote what nobody may read."""
    frames = traceback.extract_tb(error.__traceback__)
    # A library's line says less than the line of ours that called it.
    ours = [frame for frame in frames if _PACKAGE in Path(frame.filename).parents]
    frame = (ours or frames)[-1]
    file = Path(frame.filename)
    where = file.relative_to(_PACKAGE.parent) if ours else file.name
    return f"{type(error).__name__} at {where}:{frame.lineno}"
