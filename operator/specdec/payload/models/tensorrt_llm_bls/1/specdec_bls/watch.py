"""Finds out which clients have gone away, and ends the engine calls made for them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

from specdec_bls.engine import TritonEngine
from specdec_bls.reply import Reply
from specdec_bls.task import EngineError, Tensors

# Triton tells a model about a cancelled request only when asked, and forgets its question's shared
# memory when it is asked again or the request's sender dies, even if its own thread still waits on
# it. So a request is not asked about all the time, and its sender outlives the last question.
_POLL_SECONDS = 0.05
_LINGER_SECONDS = 1.0


class Watch:
    """The only thread that asks Triton about cancellation: one sweep for everybody."""

    def __init__(self) -> None:
        self._replies: dict[Reply, float] = {}
        self._calls: dict[str, tuple[Reply, TritonEngine]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="cancel-watch", daemon=True)
        self._thread.start()

    def add(self, reply: Reply) -> None:
        """Ask about a request until its reply is closed."""
        with self._changed:
            self._replies[reply] = time.monotonic()
            self._changed.notify()

    def begin(self, request_id: str, reply: Reply, engine: TritonEngine) -> None:
        """An engine call that is to be stopped when the reply's client goes."""
        with self._changed:
            self._calls[request_id] = (reply, engine)

    def end(self, request_id: str) -> None:
        """The engine call has ended."""
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
                self._changed.wait_for(lambda: self._replies or self._closed)
                if self._closed:
                    return
                asked = dict(self._replies)
            gone = self._sweep(asked)
            with self._changed:
                orphans = [one for one in self._calls.items() if one[1][0] in gone]
            for request_id, (_, engine) in orphans:
                self._stop(request_id, engine)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=_POLL_SECONDS / 2)

    def _sweep(self, asked: dict[Reply, float]) -> set[Reply]:
        """Ask about every request whose turn it is; those whose clients are gone."""
        now = time.monotonic()
        for reply, last in asked.items():
            if reply.closed:
                if now - last > _LINGER_SECONDS:
                    with self._changed:
                        del self._replies[reply]
            elif not reply.cancelled() and now - last > _POLL_SECONDS:
                reply.ask()
                with self._changed:
                    self._replies[reply] = time.monotonic()
        return {reply for reply in asked if reply.cancelled()}

    def _stop(self, request_id: str, engine: TritonEngine) -> None:
        self.end(request_id)
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
        reply: whose client it is.
    """

    def __init__(self, engine: TritonEngine, watch: Watch, reply: Reply) -> None:
        self._engine = engine
        self._watch = watch
        self._reply = reply

    def call(self, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        """One whole answer, or `EngineError` once cancelled."""
        if "draft_input_ids" in inputs:
            # A round is over before the question about it could be asked.
            return self._engine.call(inputs, outputs)
        request_id = uuid.uuid4().hex
        self._watch.begin(request_id, self._reply, self._engine)
        try:
            return self._engine.call(inputs, outputs, request_id)
        finally:
            self._watch.end(request_id)
