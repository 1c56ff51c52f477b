"""A draft/target loop like that of the guides: one request at a time, with blocking calls.

Tokenizing takes two further calls. Every round sends the whole prefix. The answer is not streamed.
With `max_tokens` -1 the loop calls both engines 500 times with tiny tensors, and answers with the
median seconds of such a round: the minimum cost of a round in this server.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

Arrays = dict[str, Any]
_STEPS = ("output_ids", "sequence_length")
_EMPTY_ROUNDS = 500


class TritonPythonModel:
    """One process of the loop."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests one after another."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if given["max_tokens"].item() < 0:
            return _text(np.array([[f"{_empty_round():.6f}".encode()]], object))
        prompt = _call(
            "preprocessing",
            {"QUERY": given["text_input"], "REQUEST_OUTPUT_LEN": given["max_tokens"]},
            ("INPUT_ID", "REQUEST_INPUT_LEN", "OUT_END_ID", "OUT_PAD_ID"),
        )
        end = {"end_id": prompt["OUT_END_ID"], "pad_id": prompt["OUT_PAD_ID"]}
        ids = prompt["INPUT_ID"]
        limit = ids.shape[1] + int(given["max_tokens"].item())
        while ids.shape[1] < limit:
            length = min(int(given["num_draft_tokens"].item()), limit - ids.shape[1] - 1)
            ids, ended = _round(ids, length, end)
            if ended:
                break
        tokens = {"TOKENS_BATCH": ids[None], "SEQUENCE_LENGTH": _number(ids.shape[1])}
        return _text(_call("postprocessing", tokens, ("OUTPUT",))["OUTPUT"])


def _round(ids: Any, length: int, end: Arrays) -> tuple[Any, bool]:
    inputs = {"input_ids": ids, "input_lengths": _number(ids.shape[1]), **end}
    drafts = {}
    if length > 0:
        limits = {"request_output_len": _number(length), "min_length": _number(length)}
        proposal = _call("tensorrt_llm_draft", {**inputs, **limits}, _STEPS)
        known = int(proposal["sequence_length"].item())
        drafts["draft_input_ids"] = proposal["output_ids"][:, 0, ids.shape[1] : known]
    limits = {"request_output_len": _number(max(length, 0) + 1)}
    answer = _call("tensorrt_llm", {**inputs, **drafts, **limits}, _STEPS)
    known = int(answer["sequence_length"].item())
    return answer["output_ids"][:, 0, :known], known == ids.shape[1]


def _empty_round() -> float:
    one = _number(1)
    tiny = {"input_ids": one, "input_lengths": one, "request_output_len": one}
    seconds = []
    for _ in range(_EMPTY_ROUNDS):
        begun = time.perf_counter()
        _call("tensorrt_llm_draft", tiny, _STEPS)
        _call("tensorrt_llm", tiny, _STEPS)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def _call(model: str, inputs: Arrays, outputs: tuple[str, ...]) -> Arrays:
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=[pb_utils.Tensor(name, np.ascontiguousarray(a)) for name, a in inputs.items()],
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def _number(value: int) -> Any:
    return np.array([[value]], np.int32)


def _text(value: Any) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", value)])
