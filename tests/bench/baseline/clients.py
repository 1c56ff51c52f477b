"""Clients of the BLS bench: each keeps its connection and sends one request after another."""

import queue
import string
import time
from typing import Any

import tritonclient.grpc as grpc

from support.triton_client import request_inputs

_SECONDS = 120.0


class Client:
    """A client of one model, with a stream or with unary calls."""

    def __init__(self, url: str, model: str, *, streaming: bool) -> None:
        self._connection = grpc.InferenceServerClient(url)
        self._model = model
        self._asking = False
        # Connect now, so that no answer's time includes it.
        self._connection.is_server_live()
        self._replies: queue.SimpleQueue[tuple[Any, Any, float]] | None = None
        if streaming:
            self._replies = queue.SimpleQueue()
            self._connection.start_stream(self._take)

    def close(self) -> None:
        """Close the connection, and cancel an answer that is still running."""
        if self._replies is not None:
            self._connection.stop_stream(cancel_requests=self._asking)
        self._connection.close()

    def ask(self, **values: Any) -> list[float]:
        """Send a request and wait for the end of its answer.

        Returns:
            the times at which the parts of the answer arrived, including the empty end of a
            stream, on the clock of `time.perf_counter`.

        Raises:
            grpc.InferenceServerException: with the server's message.
        """
        inputs = request_inputs(values)
        if self._replies is None:
            self._connection.infer(self._model, inputs, client_timeout=_SECONDS)
            return [time.perf_counter()]
        self._connection.async_stream_infer(self._model, inputs, enable_empty_final_response=True)
        self._asking = True
        times: list[float] = []
        while self._asking:
            result, error, moment = self._replies.get(timeout=_SECONDS)
            if error is not None:
                self._asking = False
                raise error
            times.append(moment)
            last = result.get_response().parameters["triton_final_response"].bool_param
            self._asking = not last
        return times

    def give_up(self, **values: Any) -> None:
        """Send a request and cancel it after the first part of its answer."""
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
    """Return a prompt whose last token differs between clients and between requests.

    The bench's engines read only this token, so acceptance in each round differs between
    answers.
    """
    return f"{request} {string.ascii_lowercase[(client + request) % 26]}"
