"""Requests to the model of vLLM on Triton.

Its inputs are those of NVIDIA's vLLM backend: one text with vLLM's sampling parameters as JSON.
The model drafts by itself, and no request turns drafts off. Each response of its stream has new
text only.
Source: `src/model.py` of Triton's vLLM backend, `sampling_params.py` of vLLM.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from specdec.servers.chunk import ALWAYS, Chunk, Deltas
from specdec.servers.encoding import (
    Declaration,
    Requests,
    TensorCall,
    refuse_chat,
    refuse_draft_field,
)
from specdec.servers.errors import BadRequestError
from specdec.servers.request import Request
from specdec.servers.tensor import Tensor, tensor
from specdec.triton.model_names import VLLM

_SAMPLING = "sampling_parameters"
_TEXT, _STOP = "text_input", "stop"
# Inputs of the model itself; the other values of a request are sampling parameters.
_INPUTS = {
    _TEXT,
    "stream",
    "exclude_input_in_output",
    "return_num_input_tokens",
    "return_num_output_tokens",
}
# Sampling parameters of vLLM, and the name of the BLS where it differs.
_PARAMETERS = {
    *("max_tokens", "temperature", "top_k", "top_p", "seed", "min_tokens", "stop", "bad_words"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
}
_NAMES = {"stop_words": "stop"}
_LISTS = ("stop", "bad_words")
# What a client asks for, by the names of the BLS, and the model's own names.
_LOG_PROBS = "return_log_probs"
_OUTPUTS = {"cum_log_probs": "cumulative_logprob", "output_log_probs": "logprobs"}
_INT64 = 2**63


class VllmRequests(Requests):
    """The only model of its server."""

    model = VLLM
    log_probs = "logprobs"

    @override
    def takes(self, inputs: frozenset[str]) -> bool:
        return {_TEXT, _SAMPLING} <= inputs

    @override
    def counts_tokens(self, declared: Declaration) -> bool:
        return "return_num_output_tokens" in declared.inputs

    @override
    def ends_at_stop(self, declared: Declaration) -> bool:
        return True

    @override
    def shortens_limits(self, declared: Declaration) -> bool:
        return True

    @override
    def gives_log_probs(self, declared: Declaration) -> bool:
        return "return_logprobs" in declared.inputs

    @override
    def read_log_probs(self, output: bytes) -> Sequence[float]:
        # The text begins with its length in four bytes.
        return _chosen(output[4:])

    @override
    def takes_parameter(self, name: str, declared: Declaration) -> bool:
        return name in _PARAMETERS or name == "end_id"

    @override
    def encode(self, request: Request, declared: Declaration) -> TensorCall:
        """Tensors of shape [n]. Without sampling parameters of its own, a request is greedy."""
        refuse_chat(request)
        tensors: dict[str, Tensor] = {}
        sampling: dict[str, Any] = {} if request.samples else {"temperature": 0.0}
        for name, value in request.fields(()):
            if name in _INPUTS:
                tensors[name] = value
            elif name == _LOG_PROBS:
                tensors |= {f"return_{own}": value for own in _OUTPUTS.values()}
                sampling["logprobs"] = 0
            else:
                if (name, value.plain) == ("end_id", -1):
                    sampling["ignore_eos"] = True
                    continue
                parameter = _parameter(name, request.model)
                sampling[parameter] = list(value.values) if parameter in _LISTS else value.plain
        tensors[_SAMPLING] = tensor("BYTES", json.dumps(_signed(sampling)))
        tensors["return_finish_reason"] = tensor("BOOL", True)
        asked = request.optional_outputs()
        names = (*ALWAYS, *(_OUTPUTS.get(name, name) for name in sorted(asked)))
        outputs = tuple(name for name in names if name in declared.outputs)
        return TensorCall(declared.name, tensors, outputs)

    @override
    def reader(self, request: Request) -> "VllmDeltas":
        return VllmDeltas(request.optional_outputs())

    @override
    def stop(self, declared: Declaration) -> TensorCall:
        inputs = {_TEXT: tensor("BYTES", ""), _STOP: tensor("BOOL", True)}
        return TensorCall(self.model, inputs)


class VllmDeltas(Deltas):
    """Reads responses with new text; log probabilities are JSON, and have names of their own."""

    @override
    def read(self, response: Mapping[str, Any]) -> Chunk | None:
        named = {known: response[own] for known, own in _OUTPUTS.items() if own in response}
        texts = named.get("output_log_probs")
        if texts is not None:
            named["output_log_probs"] = [
                value for text in texts.reshape(-1).tolist() for value in _chosen(text)
            ]
        return super().read({**response, **named})


def _parameter(name: str, model: str) -> str:
    refuse_draft_field(name, model)
    own = _NAMES.get(name, name)
    if own not in _PARAMETERS:
        raise BadRequestError(f"model {model} has no input {name}; leave it out")
    return own


def _signed(sampling: dict[str, Any]) -> dict[str, Any]:
    """The parameters with a seed of 64 bits with a sign, as vLLM has it."""
    seed = sampling.get("seed", 0)
    return {**sampling, "seed": seed - 2 * _INT64} if seed >= _INT64 else sampling


def _chosen(text: bytes | str) -> list[float]:
    """The log probability of each new token, from the JSON of one response.

    Each token has an object with an entry for itself, as no alternatives are asked for.
    """
    entries = json.loads(text) if text not in (b"", "") else None
    return [float(next(iter(entry.values()))["logprob"]) for entry in entries or () if entry]


REQUESTS = VllmRequests()
