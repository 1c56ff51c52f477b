"""An engine that fails calls with a certain frequency penalty after 12 tokens.

The test places it beside `echo.py`.
"""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils
from echo import answer  # type: ignore[import-not-found]

_PENALTY = 0.5
_TOKENS = 12


class TritonPythonModel:
    """Serves as target."""

    def execute(self, requests: list[Any]) -> None:
        """Answer one request after another."""
        for request in requests:
            sender = request.get_response_sender()
            sender.send(_answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _answer(request: Any) -> Any:
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    penalty = given["frequency_penalty"].item() if "frequency_penalty" in given else 0.0
    if penalty == _PENALTY and given["input_ids"].size > _TOKENS:
        message = f"a row with a penalty of {penalty} fails"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
    return answer(request)
