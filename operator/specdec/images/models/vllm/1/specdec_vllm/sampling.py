"""Sampling parameters: from the names and values of a request to vLLM's SamplingParams."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from vllm.sampling_params import (
    RequestOutputKind,
    SamplingParams,
    SamplingType,
    StructuredOutputsParams,
)

from specdec_vllm.requests import Request, RequestError

# Fields that the model sets, or that vLLM derives from others.
_INTERNAL = frozenset({"output_kind", "output_text_buffer_length", "skip_clone", "detokenize"})
_STRUCTURED = "structured_outputs"
# vLLM searches each new text for every stop text, in the thread that serves all requests.
_MOST_TEXTS = 64
# Some messages repeat the value.
_MOST_CHARACTERS = 500
KNOWN = frozenset(
    name
    for name in SamplingParams.__struct_fields__
    if not name.startswith("_") and name not in _INTERNAL
)
_FORMS = frozenset(each.name for each in dataclasses.fields(StructuredOutputsParams) if each.init)


def build(request: Request, sequences: int, vocabulary: int) -> SamplingParams:
    """The sampling parameters of a request.

    Args:
        request: what was asked.
        sequences: that the engine decodes at once.
        vocabulary: the number of token ids.

    Raises:
        RequestError: with the field, its value and the fix.
    """
    values = dict(request.sampling)
    structured = values.pop(_STRUCTURED, None)
    if "logprobs" not in values and {"logprobs", "cumulative_logprob"} & request.outputs:
        # The chosen token alone.
        values["logprobs"] = 0
    try:
        params = msgspec.convert(values, SamplingParams, strict=False)
        if structured is not None:
            params.structured_outputs = _structured(structured)
    except Exception as error:  # noqa: BLE001 - releases of vLLM differ in their errors
        raise RequestError(
            f"sampling_parameters is refused ({_sentence(error)}): correct the value"
        ) from None
    _check(params, sequences, vocabulary)
    params.output_kind = (
        RequestOutputKind.DELTA if request.stream else RequestOutputKind.FINAL_ONLY
    )
    return params


def _check(params: SamplingParams, sequences: int, vocabulary: int) -> None:
    """Refuse what vLLM accepts, and what then ends its engine or stops it for long."""
    if params.n > sequences:
        raise RequestError(
            f"n is {params.n}, and the engine decodes {sequences} sequences at once "
            f"(max_num_seqs): ask for at most {sequences} answers"
        )
    for name in ("stop", "bad_words"):
        count = len(getattr(params, name) or ())
        if count > _MOST_TEXTS:
            raise RequestError(f"{name} has {count} texts: send at most {_MOST_TEXTS}")
    for token in params.stop_token_ids or ():
        if not 0 <= token < vocabulary:
            raise RequestError(
                f"stop_token_ids has {token}, and the vocabulary has {vocabulary} tokens: send "
                f"ids from 0 to {vocabulary - 1}"
            )


def _structured(value: Any) -> StructuredOutputsParams:
    # NVIDIA's backend takes a JSON text within the JSON text.
    options = json.loads(value) if isinstance(value, str) else value
    if not isinstance(options, Mapping):
        raise TypeError(f"{_STRUCTURED} is {value!r:.80} and no object")
    if unknown := sorted(options.keys() - _FORMS):
        raise ValueError(
            f"{_STRUCTURED} has {', '.join(unknown)}; known are {', '.join(sorted(_FORMS))}"
        )
    return StructuredOutputsParams(**options)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".").replace("$.", "")[:_MOST_CHARACTERS]


def check_samples(params: SamplingParams) -> None:
    """Refuse sampling together with drafts where vLLM does it wrong; see `samples_wrong`.

    Raises:
        RequestError: with the fix.
    """
    if params.sampling_type != SamplingType.GREEDY:
        raise RequestError(
            f"temperature is {params.temperature}, and this build of vLLM for CPUs samples "
            "wrongly with draft tokens (vllm-project/vllm#55005): set temperature to 0"
        )


def samples_wrong() -> bool:
    """Whether this build of vLLM repeats no temperatures for the draft tokens of a request.

    Builds for CPUs up to 0.32 write the temperatures into a copy. GPUs have a kernel of their own.
    """
    import torch
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return False
    from vllm.utils import cpu_triton_utils

    repeated = torch.zeros(2, dtype=torch.float32)
    ends = torch.tensor([2], dtype=torch.int32)
    cpu_triton_utils._expand_kernel_impl(repeated, torch.ones(1), ends, 0, 1, 8)
    return not bool((repeated == 1).all())
