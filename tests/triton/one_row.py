"""A decoupled engine that takes one prompt per call; the test places it beside `echo.py`."""

from __future__ import annotations

import time
from typing import Any

import triton_python_backend_utils as pb_utils
from echo import answer  # type: ignore[import-not-found]

_SECONDS = 0.002


class TritonPythonModel:
    """Serves as draft and as target."""

    def execute(self, requests: list[Any]) -> None:
        """Answer one request after another."""
        for request in requests:
            # As long as an engine's step, so that other requests arrive during the call.
            time.sleep(_SECONDS)
            sender = request.get_response_sender()
            sender.send(_answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _answer(request: Any) -> Any:
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    if given["input_ids"].shape[0] > 1:
        message = "this engine takes one prompt a call"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
    return answer(request)
