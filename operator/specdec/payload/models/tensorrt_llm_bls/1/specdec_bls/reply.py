"""Turns parts of answers into Triton responses and sends them in the request's own way."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from specdec_bls.answer import Part
from specdec_bls.task import Task

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Reply(ABC):
    """Answers one request; several threads share it, one per prompt.

    Args:
        sender: Triton's response sender of the request.
        rows: prompts that will each call `done` or `fail` once.
        outputs: those that this release's configuration has and the client asked for.
    """

    def __init__(self, sender: Any, rows: int, outputs: Collection[str]) -> None:
        self._sender = sender
        self._open = rows
        self._outputs = outputs
        self._lock = threading.Lock()
        self._gone = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the request has had its last response."""
        return self._closed

    def cancelled(self) -> bool:
        """Whether the client had gone away when it was last asked about."""
        return self._gone

    def ask(self) -> None:
        """Ask Triton whether the client has gone away; only the watch thread does."""
        # Not after the last response: Triton then has forgotten the request.
        with self._lock:
            if not self._closed:
                self._gone = bool(self._sender.is_cancelled())

    def done(self) -> None:
        """One prompt has its whole answer; the last one closes the request."""
        with self._lock:
            self._open -= 1
            if self._open:
                return
            self._closed = True
        self._close()

    @abstractmethod
    def part(self, row: int, task: Task, part: Part) -> None:
        """Take a part of one prompt's answer."""

    @abstractmethod
    def fail(self, message: str, code: int | None = None) -> None:
        """One prompt ends with an error."""

    @abstractmethod
    def _close(self) -> None:
        """Send what ends the request."""


class StreamReply(Reply):
    """Sends every part as it comes, then an empty final response.

    Args:
        accumulate: every part carries the whole text so far instead of the new text.
    """

    def __init__(
        self, sender: Any, rows: int, outputs: Collection[str], *, accumulate: bool
    ) -> None:
        super().__init__(sender, rows, outputs)
        self._accumulate = accumulate
        self._texts = [""] * rows

    def part(self, row: int, task: Task, part: Part) -> None:
        """Send the part."""
        self._texts[row] = self._texts[row] + part.text if self._accumulate else part.text
        self._sender.send(response(tensors(self._texts[row], row, task, part, self._outputs)))

    def fail(self, message: str, code: int | None = None) -> None:
        """Send the error; other prompts go on."""
        self._sender.send(failure(message, code))
        self.done()

    def _close(self) -> None:
        self._sender.send(flags=FINAL)


class WholeReply(Reply):
    """Gathers all prompts into the one response that a model without streaming must send."""

    def __init__(self, sender: Any, rows: int, outputs: Collection[str]) -> None:
        super().__init__(sender, rows, outputs)
        self._rows: list[dict[str, NDArray[Any]]] = [{} for _ in range(rows)]
        self._failure: Any = None

    def part(self, row: int, task: Task, part: Part) -> None:
        """Keep the part: it is the prompt's whole answer."""
        self._rows[row] = tensors(part.text, row, task, part, self._outputs)

    def fail(self, message: str, code: int | None = None) -> None:
        """Keep the error: it takes the place of the whole response."""
        self._failure = failure(message, code)
        self.done()

    def _close(self) -> None:
        whole = self._failure or response(stacked(self._rows))
        self._sender.send(whole, flags=FINAL)


def response(arrays: dict[str, NDArray[Any]]) -> Any:
    """A Triton response with these outputs."""
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, array) for name, array in arrays.items()]
    )


def failure(message: str, code: int | None = None) -> Any:
    """A Triton response that is an error: the client's by default."""
    kind = pb_utils.TritonError.INVALID_ARG if code is None else code
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, kind))


def tensors(
    text: str, row: int, task: Task, part: Part, outputs: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Outputs of one part, each with a leading batch dimension of one."""
    arrays: dict[str, NDArray[Any]] = dict(part.extras)
    arrays["text_output"] = np.array([[text.encode("utf-8", "replace")]], object)
    arrays["batch_index"] = np.array([[row]], np.int32)
    arrays["sequence_index"] = np.array([[0]], np.int32)
    if task.log_probs:
        arrays["cum_log_probs"] = np.array([[part.cum_log_prob]], np.float32)
        arrays["output_log_probs"] = np.array([[part.log_probs]], np.float32)
    if task.statistics:
        rate = part.accepted / part.drafted if part.drafted else 0.0
        arrays["acceptance_rate"] = np.array([[rate]], np.float32)
        arrays["total_accepted_draft_tokens"] = np.array([[part.accepted]], np.int32)
        arrays["total_draft_tokens"] = np.array([[part.drafted]], np.int32)
    if task.input_count:
        arrays["num_input_tokens"] = np.array([[len(task.prompt)]], np.int32)
    if task.output_count:
        arrays["num_output_tokens"] = np.array([[part.tokens]], np.int32)
    return {name: array for name, array in arrays.items() if name in outputs}


def stacked(rows: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Outputs of several prompts as one batch; zeros fill what is shorter or was not asked for."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _stack([row.get(name) for row in rows]) for name in names}


def _stack(arrays: list[NDArray[Any] | None]) -> NDArray[Any]:
    given = {index: array for index, array in enumerate(arrays) if array is not None}
    shape = np.max([array.shape for array in given.values()], axis=0)
    filled = np.zeros((len(arrays), *shape[1:]), next(iter(given.values())).dtype)
    for index, array in given.items():
        filled[(index, *(slice(size) for size in array.shape[1:]))] = array[0]
    return filled
