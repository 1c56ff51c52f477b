"""vLLM's metrics on Triton's metrics port, under vLLM's own names.

vLLM counts in the registry of its Prometheus client. Every change there is copied twice a second:
an update in Triton is a call to another process, too slow for each step. Triton has no histogram
that takes buckets, so the samples of a histogram are counters, with the names that Prometheus
reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

_PREFIX = "vllm:"
_SECONDS = 0.5
# The time at which a counter began.
_CREATED = "_created"
_IN_FLIGHT = "specdec_requests_in_flight"
_Key = tuple[str, frozenset[tuple[str, str]]]


class Metric(Protocol):
    """A metric of Triton."""

    def increment(self, value: float) -> None:
        """Add to a counter."""

    def set(self, value: float) -> None:
        """Set a gauge."""


class Sample(Protocol):
    """A sample of the Prometheus client."""

    name: str
    labels: Mapping[str, str]
    value: float


class Family(Protocol):
    """A metric family of the Prometheus client."""

    name: str
    type: str
    documentation: str
    samples: Iterable[Sample]


# Creates a metric from name, help, whether it is a counter, and labels.
Create = Callable[[str, str, bool, Mapping[str, str]], Metric]


class Exporter:
    """Copies metrics.

    Args:
        collect: returns the families of the registry.
        create: makes a metric of Triton.
        labels: further labels of every metric.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Family]],
        create: Create,
        labels: Mapping[str, str],
    ) -> None:
        self._collect, self._create, self._labels = collect, create, labels
        self._metrics: dict[_Key, Metric] = {}
        self._values: dict[_Key, float] = {}

    def copy(self) -> None:
        """Write what has changed since the last call."""
        for family in self._collect():
            if family.name.startswith(_PREFIX):
                for sample in family.samples:
                    if not sample.name.endswith(_CREATED):
                        self._write(family, sample)

    def note(self, in_flight: int) -> None:
        """Write the number of requests without their last response."""
        key = (_IN_FLIGHT, frozenset[tuple[str, str]]())
        if key not in self._metrics:
            text = "Requests without their last response."
            self._metrics[key] = self._create(_IN_FLIGHT, text, False, self._labels)
        self._metrics[key].set(in_flight)

    def _write(self, family: Family, sample: Sample) -> None:
        key = (sample.name, frozenset(sample.labels.items()))
        last = self._values.get(key)
        if sample.value == last:
            return
        counts = family.type in ("counter", "histogram")
        if last is None:
            labels = {**sample.labels, **self._labels}
            self._metrics[key] = self._create(sample.name, family.documentation, counts, labels)
        if not counts:
            self._metrics[key].set(sample.value)
        elif sample.value > (last or 0.0):
            self._metrics[key].increment(sample.value - (last or 0.0))
        self._values[key] = sample.value


class Copies:
    """A thread that copies until it is closed, and counts requests at once.

    vLLM reports a request only at the end of its first step. A pod must not stop before that. The
    thread starts with the first request: on a busy machine, Triton sometimes did not answer calls
    about metrics that came before the model was initialized, and the model never was.

    Args:
        exporter: what copies.
        failed: gets the error that ended the copies.
    """

    def __init__(self, exporter: Exporter, failed: Callable[[Exception], Any]) -> None:
        self._exporter, self._failed = exporter, failed
        self._in_flight, self._lock = 0, threading.Lock()
        self._changed, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            copied = 0.0
            closed = False
            while not closed:
                self._changed.wait(_SECONDS)
                self._changed.clear()
                closed = self._closed
                self._exporter.note(self._in_flight)
                if closed or time.monotonic() - copied >= _SECONDS:
                    self._exporter.copy()
                    copied = time.monotonic()
        except Exception as error:  # noqa: BLE001 - a server without metrics still answers
            self._failed(error)

    def began(self) -> None:
        """Count a request."""
        self._add(1)

    def ended(self) -> None:
        """Count the last response of a request."""
        self._add(-1)

    def _add(self, count: int) -> None:
        with self._lock:
            self._in_flight += count
        self._changed.set()

    def close(self) -> None:
        """Copy once more, and end."""
        self._closed = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join()
