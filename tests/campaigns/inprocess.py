"""The Reference engine as the BLS calls it, without a server: its scheduler and its own wire."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from specdec.payload.backend.tensorrtllm.reference_engine import wire
from specdec.payload.backend.tensorrtllm.reference_engine.answers import answer
from specdec.payload.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.payload.backend.tensorrtllm.reference_engine.inputs import Call
from specdec.payload.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.payload.backend.tensorrtllm.reference_engine.request import Request, Update
from specdec.payload.backend.tensorrtllm.reference_engine.scheduler import Limits, Scheduler
from unit.triton.payload import load

task_module = load("specdec_bls.task")

_ANSWER_SECONDS = 300.0


class InProcess:
    """A loaded engine; calls from any thread batch in flight.

    Args:
        model: what to serve.
    """

    def __init__(self, model: Llama) -> None:
        self.scheduler = Scheduler(model, Limits())
        self._config = model.config

    def call(self, inputs: dict[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        """One whole answer."""
        try:
            request = wire.parse_call(Call(inputs), self._config)[0]
            update = self._run(request)
        except RequestError as error:
            raise task_module.EngineError(str(error)) from error
        return answer(request, update, 0, False, outputs)

    def tokens(self, request: Request) -> list[int]:
        """What the engine alone answers."""
        update = self._run(request)
        return update.tokens

    def close(self) -> None:
        """Stop."""
        self.scheduler.close()

    def _run(self, request: Request) -> Update:
        """The one piece of news of a request that does not stream."""
        arrived: queue.SimpleQueue[Update] = queue.SimpleQueue()
        [refusal] = self.scheduler.submit([[self.scheduler.ticket(request, arrived.put)]])
        if refusal is not None:
            raise refusal
        update = arrived.get(timeout=_ANSWER_SECONDS)
        if update.error is not None:
            raise task_module.EngineError(str(update.error))
        return update
