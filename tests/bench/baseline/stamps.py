"""A model for Triton's Python backend that writes time stamps into its pieces, like `clock.py`.

Parameters: the number of `pieces` of an answer, and the `seconds` between them. The text of a
piece holds two times: when the request reached the model, and when the piece left.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers each request from the timers of one thread."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self._pieces = int(parameters["pieces"]["string_value"])
        self._seconds = float(parameters["seconds"]["string_value"])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            self._loop.call_soon_threadsafe(self._later, sender, 1, time.perf_counter())

    def finalize(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _later(self, sender: Any, number: int, received: float) -> None:
        # On Linux, the loop and the stamps both use CLOCK_MONOTONIC.
        moment = received + number * self._seconds
        self._loop.call_at(moment, self._send, sender, number, received)

    def _send(self, sender: Any, number: int, received: float) -> None:
        text = f"{received!r} {time.perf_counter()!r}".encode()
        output = pb_utils.Tensor("text_output", np.array([[text]], np.object_))
        sender.send(pb_utils.InferenceResponse([output]))
        if number == self._pieces:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        else:
            self._later(sender, number + 1, received)
