"""Clients of the BLS bench: each keeps its connection and sends one request after another."""

from __future__ import annotations

import queue
import string
import time
from types import TracebackType
from typing import Any

import tritonclient.grpc as grpc

from triton.asking import request_inputs

_SECONDS = 120.0


class Client:
    """A client of one model, with a stream or with unary calls."""

    def __init__(self, url: str, model: str, *, streaming: bool) -> None:
        self._connection = grpc.InferenceServerClient(url)
        self._model = model
        # Connecting belongs to no answer's time.
        self._connection.is_server_live()
        self._replies: queue.SimpleQueue[tuple[Any, Any, float]] | None = None
        if streaming:
            self._replies = queue.SimpleQueue()
            self._connection.start_stream(self._take)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._replies is not None:
            self._connection.stop_stream(cancel_requests=error is not None)
        self._connection.close()

    def ask(self, **values: Any) -> list[float]:
        """Send a request and wait for the end of its answer.

        Returns:
            the moments at which its parts came, the empty end of a stream among them, on the
            clock of `time.perf_counter`.

        Raises:
            grpc.InferenceServerException: with the server's words.
        """
        inputs = request_inputs(values)
        if self._replies is None:
            self._connection.infer(self._model, inputs, client_timeout=_SECONDS)
            return [time.perf_counter()]
        self._connection.async_stream_infer(self._model, inputs, enable_empty_final_response=True)
        times: list[float] = []
        ended = False
        while not ended:
            result, error, moment = self._replies.get(timeout=_SECONDS)
            if error is not None:
                raise error
            times.append(moment)
            ended = result.get_response().parameters["triton_final_response"].bool_param
        return times

    def give_up(self, **values: Any) -> None:
        """Send a request and go away behind the first part of its answer; nothing follows."""
        assert self._replies is not None
        self._connection.async_stream_infer(self._model, request_inputs(values))
        _, error, _ = self._replies.get(timeout=_SECONDS)
        if error is not None:
            raise error
        self._connection.stop_stream(cancel_requests=True)

    def _take(self, result: Any, error: Any) -> None:
        assert self._replies is not None
        self._replies.put((result, error, time.perf_counter()))


def prompt(client: int, request: int) -> str:
    """A prompt whose last token differs from client to client and from request to request.

    The bench's engines look at nothing else, so answers differ in how their rounds fall.
    """
    return f"{request} {string.ascii_lowercase[(client + request) % 26]}"
