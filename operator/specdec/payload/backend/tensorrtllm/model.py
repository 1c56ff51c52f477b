"""The Reference backend: Triton's side. One instance, one process, one scheduler.

Triton hands requests over through `execute`, which returns at once; answers leave through response
senders as soon as they are there, decoupled or not, so requests of both kinds batch in flight.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reference_engine import wire
from reference_engine.config import EngineConfig, ModelSettings, resolve_lookahead
from reference_engine.errors import EngineError, Kind, RequestError
from reference_engine.llama import Llama
from reference_engine.request import Request, Ticket, Update
from reference_engine.scheduler import Limits, Scheduler
from reference_engine.weights import load

_BATCH = (
    "Batch size > 1 requires the tensorrt_llm backend to be using decoupled transaction policy"
)
_STREAM = "Streaming is only supported if model is deployed using decoupled mode."
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def _leave_word(sentence: str) -> None:
    """Say why a model does not load where Kubernetes looks for a container's last words.

    A server stops some time after the failure, and what it logs meanwhile pushes the reason out
    of the few lines that Kubernetes keeps of a log.
    """
    path = Path(os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log"))
    if not path.exists():
        return
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")
    except OSError as error:
        pb_utils.Logger.log_warn(f"{path} cannot be written: {error}")


class Conversation:
    """One Triton request: its response sender, and the tickets of its rows."""

    def __init__(self, request: Any, decoupled: bool) -> None:
        self.sender = request.get_response_sender()
        self.request_id: str = request.request_id()
        self.wanted = set(request.requested_output_names())
        self.decoupled = decoupled
        self.arrived = time.monotonic()
        self.tickets: list[Ticket] = []
        self.open_rows = 0

    def cancel(self) -> None:
        """End every row."""
        for ticket in self.tickets:
            ticket.cancel()


_Item = tuple[Conversation, Any, bool, float]


class Outbox:
    """The thread that talks to Triton, since a send waits for the server to take the answer.

    Between answers it looks for clients that went away.
    """

    def __init__(self, period: float) -> None:
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._open: dict[int, Conversation] = {}
        self._lock = threading.Lock()
        self._period = period
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def watch(self, conversation: Conversation) -> None:
        """Look after a conversation until its last answer."""
        with self._lock:
            self._open[id(conversation)] = conversation

    def send(
        self, conversation: Conversation, response: Any, last: bool, due: float = 0.0
    ) -> None:
        """Queue an answer, which leaves at `due` at the earliest; `last` ends the conversation."""
        self._queue.put((conversation, response, last, due))

    def cancel(self, request_id: str) -> int:
        """Cancel the conversations with this id; returns how many there were."""
        with self._lock:
            found = [one for one in self._open.values() if one.request_id == request_id]
        for conversation in found:
            conversation.cancel()
        return len(found)

    def close(self) -> None:
        """Send what is queued and stop."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._period
        while True:
            try:
                item = self._queue.get(timeout=max(due - time.monotonic(), 0.001))
            except queue.Empty:
                item = ()  # type: ignore[assignment]
            if item is None:
                return
            if item:
                self._deliver(*item)
            if time.monotonic() >= due:
                self._poll()
                due = time.monotonic() + self._period

    def _deliver(self, conversation: Conversation, response: Any, last: bool, due: float) -> None:
        if due:
            # Answers are queued in the order of their steps: nothing waits behind a later one.
            time.sleep(max(due - time.monotonic(), 0.0))
        try:
            if last:
                conversation.sender.send(response, flags=_FINAL)
            else:
                conversation.sender.send(response)
        except Exception as error:  # noqa: BLE001 - the client may be gone; others must not notice
            pb_utils.Logger.log_warn(f"an answer could not be sent: {error}")
            conversation.cancel()
        if last:
            with self._lock:
                self._open.pop(id(conversation), None)

    def _poll(self) -> None:
        with self._lock:
            conversations = list(self._open.values())
        for conversation in conversations:
            if conversation.tickets and conversation.sender.is_cancelled():
                conversation.cancel()


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine that the model's configuration names."""
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        logging.basicConfig(level=logging.WARNING, format=f"{self._name}: %(message)s")
        policy = config.get("model_transaction_policy") or {}
        self._decoupled = bool(policy.get("decoupled", False))
        self._outputs = {output["name"]: output["data_type"] for output in config["output"]}
        try:
            self._settings = ModelSettings.read(config)
            self._engine = EngineConfig.read(self._settings.engine_dir)
            lookahead = resolve_lookahead(self._settings, self._engine)
            model = Llama(self._engine, load(self._settings.engine_dir / "rank0.engine"))
        except EngineError as error:
            _leave_word(f"{self._name}: {error}")
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None
        settings = self._settings
        limits = Limits(
            settings.kv_tokens, settings.kv_reuse, settings.max_queue, settings.step_latency
        )
        self._scheduler = Scheduler(model, limits, lookahead)
        self._outbox = Outbox(settings.cancel_period)
        if settings.step_latency:
            pb_utils.Logger.log_warn(
                f"{self._name}: SIMULATION: every step lasts {settings.step_latency * 1e3:g} ms"
            )

    def execute(self, requests: list[Any]) -> None:
        """Take requests over. Never raises, never waits; the answers come from other threads."""
        for request in requests:
            conversation = Conversation(request, self._decoupled)
            try:
                self._start(conversation, request)
            except RequestError as error:
                self._fail(conversation, error)
            except Exception as error:  # noqa: BLE001 - raising from execute would harm the others
                pb_utils.Logger.log_error(f"{self._name}: {type(error).__name__}: {error}")
                failure = RequestError("the backend failed; see its log", Kind.INTERNAL)
                self._fail(conversation, failure)

    def finalize(self) -> None:
        """Stop; requests in flight are told so."""
        self._scheduler.close()
        self._outbox.close()

    def _start(self, conversation: Conversation, request: Any) -> None:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        stop = arrays.get("stop")
        if stop is not None and stop.size and bool(stop.reshape(-1)[0]):
            self._outbox.cancel(conversation.request_id)
            self._end_stop(conversation)
            return
        rows = arrays["input_ids"].shape[0] if "input_ids" in arrays else 1
        if rows > 1 and not self._decoupled:
            raise RequestError(_BATCH)
        parsed = [wire.parse_request(arrays, row, self._engine) for row in range(rows)]
        if parsed[0].streaming and not self._decoupled:
            raise RequestError(_STREAM)
        exclude = wire.Inputs(arrays, 0).flag(
            "exclude_input_in_output", self._settings.exclude_input
        )
        self._submit(conversation, parsed, exclude)

    def _submit(self, conversation: Conversation, rows: list[Request], exclude: bool) -> None:
        conversation.open_rows = len(rows)
        self._outbox.watch(conversation)
        for row, request in enumerate(rows):

            def listener(update: Update, row: int = row, request: Request = request) -> None:
                self._tell(conversation, request, update, row, exclude)

            try:
                ticket = self._scheduler.submit(request, listener, conversation.arrived)
                conversation.tickets.append(ticket)
            except RequestError as error:
                conversation.open_rows -= len(rows) - row
                conversation.cancel()
                if conversation.open_rows == 0:
                    raise
                self._outbox.send(conversation, self._error(error), False)
                return

    def _tell(
        self, conversation: Conversation, request: Request, update: Update, row: int, exclude: bool
    ) -> None:
        conversation.open_rows -= update.finished
        last = update.finished and conversation.open_rows == 0
        if update.error is not None:
            response = self._error(update.error)
        else:
            tensors = wire.answer(request, update, row, exclude)
            response = pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(name, self._cast(name, tensors[name]))
                    for name in self._outputs
                    if name in conversation.wanted and name in tensors
                ]
            )
        self._outbox.send(conversation, response, last, update.due)

    def _cast(self, name: str, array: Any) -> Any:
        dtype = pb_utils.triton_string_to_numpy(self._outputs[name])
        return np.ascontiguousarray(array, dtype)

    def _error(self, error: RequestError) -> Any:
        code = getattr(pb_utils.TritonError, error.kind.value)
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(f"{self._name}: {error}", code)
        )

    def _fail(self, conversation: Conversation, error: RequestError) -> None:
        self._outbox.send(conversation, self._error(error), True)

    def _end_stop(self, conversation: Conversation) -> None:
        """Answer a `stop` request, which has no tokens of its own."""
        empty = Update([], [], 0.0, [], None, True, 0, 0, 0, 0)
        conversation.open_rows = 1
        self._tell(conversation, Request(np.empty(0, np.int64), 1), empty, 0, True)
