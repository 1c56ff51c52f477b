"""The BLS's own metrics, on Triton's metrics port beside the server's."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec_bls.speculation import Chunk

# Every update of a Triton metric is a message to the server process, dearer than a round of the
# loop. Counts gather here and go out this often, and whenever an answer ends.
_FLUSH_SECONDS = 0.5

# A draft that is down fails every answer: the counter tells how many, the log that it happens.
_SAY_SECONDS = 60.0

_COUNTERS = {
    "specdec_draft_tokens_total": "Draft tokens offered to the target",
    "specdec_accepted_tokens_total": "Draft tokens the target accepted",
    "specdec_rounds_total": "Rounds: one draft call and one verification",
    "specdec_early_rounds_total": "Rounds whose draft tokens were there before they began",
    "specdec_generated_tokens_total": "Tokens of answers, speculative or not",
}


class Metrics:
    """Counts of this process; safe to use from every worker thread.

    Args:
        labels: of every metric, for example the model's name and version.
        draft_length: the server's default draft length.
    """

    def __init__(self, labels: dict[str, str], draft_length: int) -> None:
        kind = pb_utils.MetricFamily
        self._labels = labels
        self._families = {
            name: kind(name=name, description=text, kind=kind.COUNTER)
            for name, text in _COUNTERS.items()
        }
        self._metrics = {
            name: family.Metric(labels=labels) for name, family in self._families.items()
        }
        self._fallback = kind(
            name="specdec_fallback_total",
            description="Answers that went on without speculation",
            kind=kind.COUNTER,
        )
        self._fallbacks: dict[str, Any] = {}
        # Families are kept: a metric dies with the object that made it.
        self._in_flight_family = kind(
            name="specdec_requests_in_flight",
            description="Prompts being answered",
            kind=kind.GAUGE,
        )
        self._in_flight = self._in_flight_family.Metric(labels=labels)
        self._length_family = kind(
            name="specdec_draft_length",
            description="Draft tokens a round proposes by default, or as the policy last chose",
            kind=kind.GAUGE,
        )
        self._length = self._length_family.Metric(labels=labels)
        self._length.set(draft_length)
        self._draft_length: int | None = None
        self._said: float | None = None
        self._pending: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._flushed = time.monotonic()

    def chunk(self, chunk: Chunk) -> None:
        """One more chunk was generated."""
        with self._lock:
            self._pending["specdec_draft_tokens_total"] += chunk.drafted
            self._pending["specdec_accepted_tokens_total"] += chunk.accepted
            self._pending["specdec_rounds_total"] += chunk.rounds
            self._pending["specdec_early_rounds_total"] += chunk.early
            self._pending["specdec_generated_tokens_total"] += len(chunk.tokens)
            due = time.monotonic() - self._flushed > _FLUSH_SECONDS
        if due:
            self.flush()

    def fallback(self, reason: str) -> None:
        """An answer goes on without speculation."""
        with self._flushing:
            if reason not in self._fallbacks:
                labels = {**self._labels, "reason": reason}
                self._fallbacks[reason] = self._fallback.Metric(labels=labels)
            self._fallbacks[reason].increment(1)

    def draft_failed(self, words: str) -> None:
        """An answer goes on without the draft; the log says so once in a while."""
        self.fallback("draft_error")
        now = time.monotonic()
        with self._lock:
            due = self._said is None or now - self._said > _SAY_SECONDS
            if due:
                self._said = now
        if due:
            pb_utils.Logger.log_warn(f"{words}: answers go on with the target alone")

    def draft_length(self, length: int) -> None:
        """The adaptive policy settled on a length; the gauge follows with a flush."""
        with self._lock:
            self._draft_length = length

    def in_flight(self, change: int) -> None:
        """Prompts that began (positive) or ended (negative); the gauge follows with a flush."""
        with self._lock:
            self._pending["in_flight"] += change

    def flush(self) -> None:
        """Hand every count to Triton."""
        # One thread talks to the server at a time, and the next takes what gathered meanwhile.
        with self._flushing:
            with self._lock:
                pending, self._pending = self._pending, Counter()
                self._flushed = time.monotonic()
                length, self._draft_length = self._draft_length, None
            if length is not None:
                self._length.set(length)
            for name, count in pending.items():
                if count:
                    metric = self._in_flight if name == "in_flight" else self._metrics[name]
                    metric.increment(count)
