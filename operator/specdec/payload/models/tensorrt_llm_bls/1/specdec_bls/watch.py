"""Ends engine calls whose client has gone, also those that answer only once, at their end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator, Sequence

from specdec_bls.engine import TritonEngine
from specdec_bls.task import Cancelled, EngineError, Tensors

# Triton tells a model about a cancelled request only when asked.
_POLL_SECONDS = 0.05


class Watch:
    """One thread that asks about every watched call and stops those that were cancelled."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[TritonEngine, Cancelled]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="cancel-watch", daemon=True)
        self._thread.start()

    def add(self, request_id: str, engine: TritonEngine, cancelled: Cancelled) -> None:
        """Watch a call until it is removed."""
        with self._changed:
            self._calls[request_id] = (engine, cancelled)
            self._changed.notify()

    def remove(self, request_id: str) -> None:
        """The call has ended."""
        with self._changed:
            self._calls.pop(request_id, None)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closed)
                if self._closed:
                    return
                calls = list(self._calls.items())
            for request_id, (engine, cancelled) in calls:
                if cancelled():
                    self._stop(request_id, engine)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=_POLL_SECONDS)

    def _stop(self, request_id: str, engine: TritonEngine) -> None:
        self.remove(request_id)
        try:
            engine.stop(request_id)
        except EngineError:
            # It ended by itself in between, which is all that was wanted.
            return


class WatchedEngine:
    """An engine whose calls end early when the client goes away.

    Args:
        engine: the served model.
        watch: the thread that asks.
        cancelled: whether this request's client is gone.
    """

    def __init__(self, engine: TritonEngine, watch: Watch, cancelled: Cancelled) -> None:
        self._engine = engine
        self._watch = watch
        self._cancelled = cancelled

    def call(self, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        """One whole answer, or `EngineError` once cancelled."""
        request_id = uuid.uuid4().hex
        self._watch.add(request_id, self._engine, self._cancelled)
        try:
            return self._engine.call(inputs, outputs, request_id)
        finally:
            self._watch.remove(request_id)

    def stream(self, inputs: Tensors, outputs: Sequence[str]) -> Generator[Tensors, None, None]:
        """Partial answers; their consumer asks about cancellation itself."""
        return self._engine.stream(inputs, outputs)
