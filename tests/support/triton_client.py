"""A gRPC client for tests, which sends plain values and returns arrays."""

import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from cluster.processes import DEADLINE_SECONDS

Arrays = dict[str, NDArray[Any]]
_TYPES: dict[str, Any] = {
    "temperature": np.float32,
    "top_p": np.float32,
    "repetition_penalty": np.float32,
    "presence_penalty": np.float32,
    "frequency_penalty": np.float32,
    "embedding_bias_weights": np.float32,
    "random_seed": np.uint64,
    "seed": np.uint64,
    "lora_task_id": np.uint64,
}


class RefusedError(Exception):
    """The server answered with an error."""


class Stream:
    """A streamed answer to a request; a test iterates over its parts or cancels it."""

    def __init__(
        self, url: str, model: str, values: Mapping[str, Any], request_id: str = ""
    ) -> None:
        self._client = grpc.InferenceServerClient(url)
        self._replies: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._ended = False
        self._client.start_stream(lambda result, error: self._replies.put((result, error)))
        self._client.async_stream_infer(
            model,
            request_inputs(values),
            request_id=request_id,
            enable_empty_final_response=True,
        )

    def __iter__(self) -> Iterator[Arrays]:
        while True:
            result, error = self._replies.get(timeout=DEADLINE_SECONDS)
            if error is not None:
                self._ended = True
                raise RefusedError(error.message())
            reply = result.get_response()
            arrays = {output.name: result.as_numpy(output.name) for output in reply.outputs}
            if arrays:
                yield arrays
            if reply.parameters["triton_final_response"].bool_param:
                self._ended = True
                return

    def cancel(self) -> None:
        """Cancel the request while its answer is incomplete."""
        self._client.stop_stream(cancel_requests=True)

    def close(self) -> None:
        """Close the connection; cancel a request with an incomplete answer, as in a failed test.

        Do not cancel a complete answer: Triton 2.51 then sometimes keeps the request, and with it
        the model, until the server's exit timeout.
        """
        self._client.stop_stream(cancel_requests=not self._ended)
        self._client.close()


@contextmanager
def stream(url: str, model: str, *, request_id: Any = "", **values: Any) -> Iterator[Stream]:
    """Send a request; yield its answer, which the test reads part by part.

    `request_id` is a string; its type is as open as that of the values, which callers spread.
    """
    opened = Stream(url, model, values, request_id)
    try:
        yield opened
    finally:
        opened.close()


def ask(url: str, model: str, *, request_id: Any = "", **values: Any) -> list[Arrays]:
    """Send a request; return all parts of its answer.

    Raises:
        RefusedError: with the server's message.
    """
    with stream(url, model, request_id=request_id, **values) as parts:
        return list(parts)


def ask_once(url: str, model: str, **values: Any) -> Arrays:
    """Return the answer of a model that is not decoupled, by a unary call.

    Raises:
        RefusedError: with the server's message.
    """
    with grpc.InferenceServerClient(url) as client:
        try:
            result = client.infer(model, request_inputs(values), client_timeout=DEADLINE_SECONDS)
        except grpc.InferenceServerException as error:
            raise RefusedError(error.message()) from None
        return {o.name: result.as_numpy(o.name) for o in result.get_response().outputs}


def text(parts: list[Arrays]) -> str:
    """Return the text of an answer, which joins the texts of its parts."""
    return b"".join(part["text_output"].reshape(-1)[0] for part in parts).decode()


def tokens(arrays: Arrays, skip: int = 0) -> list[int]:
    """Return the token ids of a `tensorrt_llm` answer after the first `skip`."""
    length = int(arrays["sequence_length"].reshape(-1)[0])
    return [int(token) for token in arrays["output_ids"].reshape(-1)[skip:length]]


def request_inputs(values: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a request, one for each value."""
    return [_input(name, value) for name, value in values.items()]


def _input(name: str, value: Any) -> Any:
    array = value if isinstance(value, np.ndarray) else _array(name, value)
    tensor = grpc.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


def _array(name: str, value: Any) -> NDArray[Any]:
    """Return a value as an array of one row; a nested list has several rows."""
    rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    rows = [row if isinstance(row, list) else [row] for row in rows]
    if isinstance(rows[0][0], str | bytes):
        encoded = [[w.encode() if isinstance(w, str) else w for w in row] for row in rows]
        return np.array(encoded, object)
    if isinstance(rows[0][0], bool):
        return np.array(rows, bool)
    return np.array(rows, _TYPES.get(name, np.int32))
