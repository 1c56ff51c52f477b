"""The Reference engine without a server, for the answers of a target alone."""

import queue

from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.request import Request, Update
from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
    Scheduler,
    SchedulerLimits,
)

_ANSWER_SECONDS = 300.0


class InProcess:
    """A loaded engine that batches concurrent calls from any thread.

    Args:
        model: the loaded model.
    """

    def __init__(self, model: Llama) -> None:
        self._scheduler = Scheduler(model, SchedulerLimits())

    def tokens(self, request: Request) -> list[int]:
        """Return the tokens that the engine answers."""
        arrived: queue.SimpleQueue[Update] = queue.SimpleQueue()
        [refusal] = self._scheduler.submit([[self._scheduler.ticket(request, arrived.put)]])
        if refusal is not None:
            raise refusal
        # A request without a stream gets exactly one update.
        update = arrived.get(timeout=_ANSWER_SECONDS)
        if update.error is not None:
            raise update.error
        return update.tokens

    def close(self) -> None:
        """Stop the scheduler."""
        self._scheduler.close()
