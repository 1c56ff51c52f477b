"""An engine that may answer in parts and still takes one prompt a call."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_VOCABULARY = 1000
_SECONDS = 0.002


class TritonPythonModel:
    """Serves as draft and as target; agrees with every draft token and adds the next number."""

    def execute(self, requests: list[Any]) -> None:
        """Answer one request after another."""
        for request in requests:
            time.sleep(_SECONDS)
            sender = request.get_response_sender()
            sender.send(_answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _answer(request: Any) -> Any:
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    if given["input_ids"].shape[0] > 1:
        words = "this engine takes one prompt a call"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(words))
    ids, asked = given["input_ids"].reshape(-1), int(given["request_output_len"].item())
    drafted = given.get("draft_input_ids", np.empty(0, np.int32)).reshape(-1)
    first = ids.size + drafted.size
    # Tokens 1 to 1000: 0 would end the answer.
    rest = np.arange(first, ids.size + asked, dtype=np.int32) % _VOCABULARY + 1
    whole = np.concatenate([ids, drafted, rest]).astype(np.int32)
    outputs = {
        "output_ids": whole[None, None],
        "sequence_length": np.array([[whole.size]], np.int32),
    }
    wanted = request.requested_output_names()
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, array) for name, array in outputs.items() if name in wanted]
    )
