"""In-flight batching: one thread runs one forward pass per step over all active sequences."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from .config import EngineConfig, Lookahead
from .errors import Kind, RequestError
from .kv import KVPool
from .llama import Llama, Rows
from .lookahead import Proposer
from .pace import Pace
from .request import Listener, Request, Ticket, Update
from .room import fitted
from .sequence import Sequence

log = logging.getLogger(__name__)

UNLOADED = RequestError("the model was unloaded before the answer was done", Kind.UNAVAILABLE)
CANCELLED = RequestError("the request was cancelled", Kind.CANCELLED)
FAILED = RequestError("the engine failed on this request; see the server's log", Kind.INTERNAL)


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of a scheduler.

    Attributes:
        kv_tokens: tokens the KV cache may hold; 0 selects the default of `ModelSettings`.
        kv_reuse: whether finished sequences are kept for their prefix.
        max_queue: requests that may wait.
        step_latency: SIMULATION: seconds a step lasts at least; see `ModelSettings`.
        gate: SIMULATION: no step begins while it is not set; `close` sets it.
        normalize_log_probs: see `ModelSettings`.
    """

    kv_tokens: int = 0
    kv_reuse: bool = True
    max_queue: int = 1024
    step_latency: float = 0.0
    gate: threading.Event | None = None
    normalize_log_probs: bool = False


class Scheduler:
    """Runs requests on one model; `steps` is the number of forward passes so far.

    Any thread may call `submit`. The scheduler's own thread calls the listeners.
    """

    def __init__(
        self, model: Llama, limits: SchedulerLimits, lookahead: Lookahead | None = None
    ) -> None:
        config: EngineConfig = model.config
        budget = limits.kv_tokens or config.max_batch_size * (config.max_seq_len + 256)
        self._model = model
        self._config = config
        self._limits = limits
        self._lookahead = lookahead
        self._pool = KVPool(config, budget, limits.kv_reuse)
        self._waiting: deque[Ticket] = deque()
        self._active: list[Sequence] = []
        self._changed = threading.Condition()
        self._stopping = False
        self.steps = 0
        self._pace = Pace(limits.step_latency)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def ticket(self, request: Request, listener: Listener, arrived: float | None = None) -> Ticket:
        """Check a request; `arrived` is its time on the monotonic clock, by default now.

        Raises:
            RequestError: it can never run here.
        """
        moment = time.monotonic() if arrived is None else arrived
        return Ticket(self._admissible(request), listener, moment)

    def submit(self, calls: list[list[Ticket]]) -> list[RequestError | None]:
        """Queue the rows of calls that came together, so that one step begins them all.

        Returns:
            for each call why none of its rows was taken: too many are waiting, or the scheduler
            is closing.
        """
        refusals: list[RequestError | None] = []
        with self._changed:
            for call in calls:
                refusal = self._refusal(len(call))
                if refusal is None:
                    self._waiting.extend(call)
                refusals.append(refusal)
            self._changed.notify()
        return refusals

    def _refusal(self, rows: int) -> RequestError | None:
        if self._stopping:
            sentence = "the model is being unloaded; send the request to another pod"
        elif len(self._waiting) + rows > max(self._limits.max_queue, rows):
            sentence = f"{len(self._waiting)} requests are waiting; retry later"
        else:
            return None
        return RequestError(sentence, Kind.UNAVAILABLE)

    def close(self) -> None:
        """Stop; every request in flight ends with an error."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._limits.gate is not None:
            self._limits.gate.set()
        self._thread.join()

    def _admissible(self, request: Request) -> Request:
        """Check a request against the engine, and shorten its answer to what fits."""
        request = fitted(request, self._config)
        held = self._pool.capacity_for(self._needed(request))
        if held > self._pool.budget:
            raise RequestError(
                f"this request needs {held} tokens of KV cache but max_tokens_in_paged_kv_cache "
                f"is {self._pool.budget}; raise it or ask for fewer tokens"
            )
        return request

    def _needed(self, request: Request) -> int:
        """Tokens a request's buffer must have room for: its own, and rows that may be refused."""
        shape = self._shape(request)
        extra = 0 if shape is None else shape.draft_len
        if request.draft is not None:
            extra = request.draft.size
        return request.prompt.size + request.max_new + extra

    def _shape(self, request: Request) -> Lookahead | None:
        """Return the request's lookahead shape, which may only be smaller than the model's."""
        shape = self._lookahead
        if shape is None:
            return None
        if request.lookahead is not None:
            asked = Lookahead(*request.lookahead)
            if (
                asked.window > shape.window
                or asked.ngram > shape.ngram
                or asked.verification > shape.verification
            ):
                raise RequestError(
                    f"lookahead {asked.window}, {asked.ngram}, {asked.verification} exceeds "
                    f"the model's {shape.window}, {shape.ngram}, {shape.verification}"
                )
            shape = asked
        return None if shape.ngram < 2 else shape

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._active or self._stopping):
                    self._changed.wait()
                if self._stopping:
                    break
            # Wait for the end of the simulated step only when the next step has work.
            self._pace.wait()
            if self._limits.gate is not None:
                self._limits.gate.wait()
            with self._changed:
                if self._stopping:
                    break
                self._drop_cancelled()
                self._admit()
            if self._active:
                self._step()
        for sequence in self._active:
            sequence.ticket.report(sequence.update(UNLOADED))
        for ticket in self._waiting:
            ticket.report(_refusal(UNLOADED))

    def _drop_cancelled(self) -> None:
        for ticket in list(self._waiting):
            if ticket.cancelled:
                self._waiting.remove(ticket)
                ticket.report(_refusal(CANCELLED))
        for sequence in list(self._active):
            if sequence.ticket.cancelled:
                self._end(sequence, CANCELLED)

    def _admit(self) -> None:
        """Start waiting requests, first come first served, while slots and cache allow."""
        while self._waiting and len(self._active) < self._config.max_batch_size:
            ticket = self._waiting[0]
            request = ticket.request
            reusable = 0 if request.want_context_logits else request.prompt.size - 1
            reservation = self._pool.reserve(request.prompt, self._needed(request), reusable)
            if reservation is None:
                return
            self._waiting.popleft()
            self._pace.join(ticket.arrived)
            shape = self._shape(request)
            proposer = None if shape is None else Proposer(shape, request.prompt)
            self._active.append(
                Sequence(
                    ticket,
                    self._model,
                    reservation,
                    proposer,
                    normalize_log_probs=self._limits.normalize_log_probs,
                )
            )

    def _step(self) -> None:
        """Advance every sequence that fits into one pass of at most max_num_tokens rows."""
        batch: list[tuple[Sequence, Rows]] = []
        room = self._config.max_num_tokens
        for sequence in self._active:
            rows = sequence.rows()
            if batch and rows.tokens.size > room:
                continue
            room -= rows.tokens.size
            batch.append((sequence, rows))
        try:
            results = self._model.forward([rows for _, rows in batch])
        except Exception:
            log.exception("a step failed")
            for sequence, _ in batch:
                self._end(sequence, FAILED)
            return
        self.steps += 1
        failed = {
            id(sequence)
            for (sequence, rows), logits in zip(batch, results, strict=True)
            if not self._advance(sequence, rows, logits)
        }
        simulated = self._limits.step_latency > 0
        # The simulated step includes the time to build responses; they are sent at its end.
        due = self._pace.end() if simulated else 0.0
        for sequence, _ in batch:
            self._report(sequence, FAILED if id(sequence) in failed else None, due)
        # Sequences that did not fit come first in the next step.
        computed = {id(sequence) for sequence, _ in batch}
        self._active.sort(key=lambda sequence: id(sequence) in computed)

    def _advance(self, sequence: Sequence, rows: Rows, logits: object) -> bool:
        try:
            sequence.advance(rows, logits)  # type: ignore[arg-type]
        except Exception:
            log.exception("a sequence failed")
            return False
        return True

    def _report(self, sequence: Sequence, error: RequestError | None, due: float) -> None:
        if error is not None or sequence.finished:
            self._end(sequence, error, due)
        elif sequence.has_update:
            sequence.ticket.report(replace(sequence.update(), due=due))

    def _end(
        self, sequence: Sequence, error: RequestError | None = None, due: float = 0.0
    ) -> None:
        self._active.remove(sequence)
        self._pool.release(sequence.buffer, keep=error is None)
        sequence.ticket.report(replace(sequence.update(error), due=due))


def _refusal(error: RequestError) -> Update:
    return Update([], [], 0.0, [], None, True, 0, 0, 0, 0, error)
