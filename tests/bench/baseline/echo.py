"""An engine that answers at once: it accepts draft tokens and adds the next number.

It rejects token 0, with which the BLS pads proposals.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_VOCABULARY = 1000
_MOST_LOGITS = 8


class TritonPythonModel:
    """Serves as draft and as target, one request after another."""

    def initialize(self, args: dict[str, str]) -> None:
        """Allocate the logits, which are the same in every response."""
        parameters = json.loads(args["model_config"])["parameters"]
        width = int(parameters["logits"]["string_value"])
        self._logits = np.zeros((1, 1, _MOST_LOGITS, width), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer with the prefix, the draft tokens and new tokens up to the requested length."""
        return [answer(request, self._logits) for request in requests]


def answer(request: Any, logits: Any = None) -> Any:
    """Return the response to a request: both outputs, and a draft's logits of the new tokens."""
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    ids, asked = given["input_ids"].reshape(-1), int(given["request_output_len"].item())
    drafted = given.get("draft_input_ids", np.empty(0, np.int32)).reshape(-1)
    drafted = drafted[: np.argmin(drafted)] if 0 in drafted else drafted
    first = ids.size + drafted.size
    # Tokens 1 to 1000: 0 would end the answer.
    rest = np.arange(first, ids.size + asked, dtype=np.int32) % _VOCABULARY + 1
    whole = np.concatenate([ids, drafted, rest])
    outputs = [
        pb_utils.Tensor("output_ids", whole.astype(np.int32)[None, None]),
        pb_utils.Tensor("sequence_length", np.array([[whole.size]], np.int32)),
    ]
    if "return_generation_logits" in given:
        outputs.append(pb_utils.Tensor("generation_logits", logits[:, :, :asked]))
    return pb_utils.InferenceResponse(outputs)
