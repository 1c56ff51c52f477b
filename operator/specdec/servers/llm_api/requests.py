"""Requests to the model of TensorRT-LLM's LLM API on Triton.

Its inputs have other names than those of the BLS, and no request selects draft tokens. Each
response of its stream has the whole text so far.
Source: `triton_backend/all_models/llmapi` of TensorRT-LLM.
"""

from types import MappingProxyType

from typing_extensions import override

from specdec.servers.chunk import ALWAYS, WholeTexts
from specdec.servers.encoding import (
    Declaration,
    Requests,
    TensorCall,
    refuse_chat,
    refuse_draft_field,
)
from specdec.servers.request import Request
from specdec.servers.sampling import input_name
from specdec.servers.tensor import Tensor, tensor
from specdec.triton.model_names import TARGET

_PREFIX = "sampling_param_"
_MAX_TOKENS = f"{_PREFIX}max_tokens"
_NAMES = {
    "text_input": "text_input",
    "stream": "streaming",
    "stop_words": f"{_PREFIX}stop",
    "exclude_input_in_output": f"{_PREFIX}exclude_input_from_output",
}
# Releases that lack these inputs have the requested value as their default.
_LEFT_OUT = {f"{_PREFIX}exclude_input_from_output", f"{_PREFIX}return_perf_metrics"}
_REASON = "return_finish_reason"


class LlmApiRequests(Requests):
    """The only model of its server; it drafts by itself."""

    model = TARGET
    whole_texts = True
    greedy = MappingProxyType({"top_k": 1})

    @override
    def takes(self, inputs: frozenset[str]) -> bool:
        return _MAX_TOKENS in inputs

    @override
    def takes_parameter(self, name: str, declared: Declaration) -> bool:
        return f"{_PREFIX}{name}" in declared.inputs

    @override
    def repeats_samples(self, declared: Declaration) -> bool:
        return self.takes_parameter("seed", declared)

    @override
    def encode(self, request: Request, declared: Declaration) -> TensorCall:
        """Tensors of shape [n], by the names of the LLM API's sampling parameters."""
        refuse_chat(request)
        tensors: dict[str, Tensor] = {}
        for name, value in request.fields({"return_perf_metrics"}):
            refuse_draft_field(name, request.model)
            own = _NAMES.get(name, f"{_PREFIX}{name}")
            if own in declared.inputs:
                tensors[own] = value
            elif own not in _LEFT_OUT:
                # `input_name` raises the error for an input that the model lacks.
                tensors[input_name(name, declared.inputs, request.model)] = value
        if _REASON in declared.inputs:
            tensors[_REASON] = tensor("BOOL", True)
        outputs = tuple(name for name in ALWAYS if name in declared.outputs)
        return TensorCall(declared.name, tensors, outputs)

    @override
    def reader(self, request: Request) -> WholeTexts:
        return WholeTexts()

    @override
    def stop(self, declared: Declaration) -> TensorCall:
        inputs = {"text_input": tensor("BYTES", ""), "stop": tensor("BOOL", True)}
        return TensorCall(self.model, inputs)


REQUESTS = LlmApiRequests()
