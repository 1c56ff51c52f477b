"""A draft/target loop shaped like the guides': one request after another, each call blocking.

Tokenizing is two further calls, the whole prefix goes along in every round, the answer comes once.
"""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

_STEPS = ("output_ids", "sequence_length")


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        length = int(given["num_draft_tokens"].item())
        prompt = _call(
            "preprocessing",
            {
                "QUERY": given["text_input"],
                "REQUEST_OUTPUT_LEN": given["max_tokens"],
            },
            ("INPUT_ID", "REQUEST_INPUT_LEN", "OUT_END_ID", "OUT_PAD_ID"),
        )
        end = {"end_id": prompt["OUT_END_ID"], "pad_id": prompt["OUT_PAD_ID"]}
        ids = prompt["INPUT_ID"]
        limit = ids.shape[1] + int(given["max_tokens"].item())
        while ids.shape[1] < limit:
            ids, ended = self._round(ids, min(length, limit - ids.shape[1] - 1), end)
            if ended:
                break
        text = _call(
            "postprocessing",
            {
                "TOKENS_BATCH": ids[None],
                "SEQUENCE_LENGTH": np.array([[ids.shape[1]]], np.int32),
            },
            ("OUTPUT",),
        )
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text["OUTPUT"])])

    def _round(self, ids, length, end):
        inputs = {"input_ids": ids, "input_lengths": np.array([[ids.shape[1]]], np.int32), **end}
        drafts = {}
        if length > 0:
            minimum = np.array([[length]], np.int32)
            proposal = _call(
                "tensorrt_llm_draft",
                {**inputs, "request_output_len": minimum, "min_length": minimum},
                _STEPS,
            )
            known = int(proposal["sequence_length"].item())
            drafts["draft_input_ids"] = proposal["output_ids"][:, 0, ids.shape[1] : known]
        count = np.array([[max(length, 0) + 1]], np.int32)
        answer = _call("tensorrt_llm", {**inputs, **drafts, "request_output_len": count}, _STEPS)
        known = int(answer["sequence_length"].item())
        return answer["output_ids"][:, 0, :known], known == ids.shape[1]


def _call(model, inputs, outputs):
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=[pb_utils.Tensor(name, np.ascontiguousarray(a)) for name, a in inputs.items()],
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
