"""Turns parts of answers into Triton responses and sends them in the request's own way."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from specdec_bls.answer import Part
from specdec_bls.task import Task

# Asking Triton whether a request was cancelled is a message to the server process.
_ASK_SECONDS = 0.005
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Reply:
    """Sends responses of one decoupled request from several threads, one per prompt.

    Args:
        sender: Triton's response sender of the request.
        rows: prompts that will each call `done` or `fail` once.
        declared: outputs this release's configuration has.
        accumulate: every part carries the whole text so far instead of the new text.
    """

    def __init__(
        self, sender: Any, rows: int, declared: Collection[str], *, accumulate: bool
    ) -> None:
        self._sender = sender
        self._rows = rows
        self._declared = declared
        self._accumulate = accumulate
        self._texts = [""] * rows
        self._lock = threading.Lock()
        self._asked = 0.0
        self._gone = False

    def cancelled(self) -> bool:
        """Whether the client has gone away."""
        with self._lock:
            now = time.monotonic()
            if not self._gone and now - self._asked >= _ASK_SECONDS:
                self._asked = now
                self._gone = bool(self._sender.is_cancelled())
            return self._gone

    def part(self, row: int, task: Task, part: Part) -> None:
        """Send a part of one prompt's answer."""
        self._texts[row] = self._texts[row] + part.text if self._accumulate else part.text
        arrays = tensors(self._texts[row], row, task, part, self._declared)
        self._sender.send(response(arrays))

    def done(self) -> None:
        """One prompt has its whole answer; the last one closes the request."""
        with self._lock:
            self._rows -= 1
            last = self._rows == 0
        if last:
            self._sender.send(flags=_FINAL)

    def fail(self, message: str, code: int | None = None) -> None:
        """One prompt ends with an error."""
        self._sender.send(failure(message, code))
        self.done()


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
    text: str, row: int, task: Task, part: Part, declared: Collection[str]
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
    return {name: array for name, array in arrays.items() if name in declared}


def stacked(rows: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Outputs of several prompts as one batch; shorter rows are filled with zeros."""
    return {name: _stack([row[name] for row in rows]) for name in rows[0]}


def _stack(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    shape = np.max([array.shape for array in arrays], axis=0)
    filled = np.zeros((len(arrays), *shape[1:]), arrays[0].dtype)
    for index, array in enumerate(arrays):
        filled[(index, *(slice(size) for size in array.shape[1:]))] = array[0]
    return filled
