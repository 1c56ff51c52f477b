"""The Reference engine without a server: what a target alone answers."""

from __future__ import annotations

import queue

from specdec.payload.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.payload.backend.tensorrtllm.reference_engine.request import Request, Update
from specdec.payload.backend.tensorrtllm.reference_engine.scheduler import Limits, Scheduler

_ANSWER_SECONDS = 300.0


class InProcess:
    """A loaded engine; calls from any thread batch in flight.

    Args:
        model: what to serve.
    """

    def __init__(self, model: Llama) -> None:
        self._scheduler = Scheduler(model, Limits())

    def tokens(self, request: Request) -> list[int]:
        """What the engine alone answers."""
        arrived: queue.SimpleQueue[Update] = queue.SimpleQueue()
        [refusal] = self._scheduler.submit([[self._scheduler.ticket(request, arrived.put)]])
        if refusal is not None:
            raise refusal
        # A request that does not stream has one piece of news.
        update = arrived.get(timeout=_ANSWER_SECONDS)
        if update.error is not None:
            raise update.error
        return update.tokens

    def close(self) -> None:
        """Stop."""
        self._scheduler.close()
