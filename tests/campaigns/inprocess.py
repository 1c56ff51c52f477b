"""The Reference engine as the BLS calls it, without a server: its scheduler and its own wire."""

from __future__ import annotations

import queue
from collections.abc import Generator, Sequence
from typing import Any

from specdec.payload.backend.tensorrtllm.reference_engine import wire
from specdec.payload.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.payload.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.payload.backend.tensorrtllm.reference_engine.request import Request, Ticket, Update
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
        *_, answer = self._answers(inputs)
        return answer

    def stream(
        self, inputs: dict[str, Any], outputs: Sequence[str]
    ) -> Generator[dict[str, Any], None, None]:
        """Partial answers."""
        return self._answers(inputs)

    def tokens(self, request: Request) -> list[int]:
        """What the engine alone answers."""
        _, updates = self._submit(request)
        found: list[int] = []
        for update in updates:
            found += update.tokens
        return found

    def close(self) -> None:
        """Stop."""
        self.scheduler.close()

    def _answers(self, inputs: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        try:
            request = wire.parse_request(inputs, 0, self._config)
            ticket, updates = self._submit(request)
        except RequestError as error:
            raise task_module.EngineError(str(error)) from error
        try:
            for update in updates:
                yield wire.answer(request, update, 0, False)
        finally:
            ticket.cancel()

    def _submit(self, request: Request) -> tuple[Ticket, Generator[Update, None, None]]:
        arrived: queue.SimpleQueue[Update] = queue.SimpleQueue()
        ticket = self.scheduler.submit(request, arrived.put)
        return ticket, _until_finished(arrived)


def _until_finished(arrived: queue.SimpleQueue[Update]) -> Generator[Update, None, None]:
    while True:
        update = arrived.get(timeout=_ANSWER_SECONDS)
        if update.error is not None:
            raise task_module.EngineError(str(update.error))
        yield update
        if update.finished:
            return
