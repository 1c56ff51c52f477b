"""Parse requests from the input tensors of Triton, as plain arrays without Triton's types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .config import EngineConfig
from .errors import RequestError
from .inputs import Call, Inputs
from .request import Request
from .sampling import Sampling
from .weights import Floats
from .word_lists import EMPTY, parse

# Tensors of a row, each with the field it becomes; of two names for one field the later one wins.
_FLAGS = (
    ("streaming", "streaming"),
    ("return_log_probs", "want_log_probs"),
    ("return_context_logits", "want_context_logits"),
    ("return_generation_logits", "want_generation_logits"),
    ("return_num_input_tokens", "want_input_count"),
    ("return_num_output_tokens", "want_output_count"),
)
_INTEGERS = (
    ("runtime_top_k", "top_k"),
    ("random_seed", "seed"),
    ("seed", "seed"),
    ("end_id", "end_id"),
    ("min_length", "min_length"),
    ("min_tokens", "min_length"),
)
_NUMBERS = (
    ("runtime_top_p", "top_p"),
    ("temperature", "temperature"),
    ("repetition_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
)


def parse_call(call: Call, config: EngineConfig) -> list[Request]:
    """Read every row of a call.

    Raises:
        RequestError: a tensor is missing, has a wrong shape or a value out of range.
    """
    return [_parse(Inputs(call, row), config) for row in range(call.rows)]


def _parse(inputs: Inputs, config: EngineConfig) -> Request:
    _refuse_unsupported(inputs)
    prompt = inputs.ids("input_ids", config.vocab_size)
    if not prompt.size:
        raise RequestError("input_ids is missing or empty; send at least one token")
    length = inputs.integer("input_lengths", prompt.size)
    if not 1 <= length <= prompt.size:
        raise RequestError(f"input_lengths {length} must be between 1 and {prompt.size}")
    max_new = inputs.scalar("request_output_len")
    if max_new is None or int(max_new) < 1:
        raise RequestError(f"request_output_len must be at least 1, not {max_new}")
    draft = inputs.ids("draft_input_ids", config.vocab_size)
    stop = inputs.array("stop_words_list")
    return Request(
        prompt=prompt[:length],
        max_new=int(max_new),
        rules=_sampling(inputs, config),
        stop_words=EMPTY if stop is None else parse(stop, "stop_words_list"),
        draft=draft if draft.size else None,
        draft_logits=_draft_logits(inputs, draft.size, config),
        threshold=_threshold(inputs),
        lookahead=_lookahead(inputs),
        **{field: True for name, field in _FLAGS if inputs.flag(name)},
    )


def _refuse_unsupported(inputs: Inputs) -> None:
    for name in ("beam_width", "num_return_sequences"):
        value = inputs.integer(name, 1)
        if value > 1:
            raise RequestError(f"{name} {value} must be 1: the Reference backend has no beams")
    for name in ("prompt_embedding_table", "lora_task_id", "guided_decoding_guide_type"):
        if inputs.has(name):
            raise RequestError(f"{name} is not in the Reference backend; leave it out")


def _sampling(inputs: Inputs, config: EngineConfig) -> Sampling:
    fields: dict[str, Any] = {
        field: inputs.integer(name, 0) for name, field in _INTEGERS if inputs.has(name)
    }
    fields |= {field: inputs.number(name, 0.0) for name, field in _NUMBERS if inputs.has(name)}
    bad, bias = inputs.array("bad_words_list"), inputs.array("embedding_bias")
    if bias is not None:
        if bias.size != config.vocab_size:
            raise RequestError(
                f"embedding_bias has {bias.size} values, the vocabulary {config.vocab_size}"
            )
        fields["bias"] = bias.reshape(-1).astype(np.float32)
    if bad is not None:
        fields["bad_words"] = parse(bad, "bad_words_list")
    rules = Sampling(**fields)
    if rules.top_k < 0 or not 0.0 <= rules.top_p <= 1.0:
        raise RequestError(
            f"runtime_top_k {rules.top_k} must be 0 or more, "
            f"runtime_top_p {rules.top_p:g} in [0, 1]"
        )
    if rules.temperature < 0.0 or rules.repetition_penalty <= 0.0:
        raise RequestError(
            f"temperature {rules.temperature:g} must be 0 or more, "
            f"repetition_penalty {rules.repetition_penalty:g} more than 0"
        )
    return rules


def _draft_logits(inputs: Inputs, drafts: int, config: EngineConfig) -> Floats | None:
    array = inputs.array("draft_logits")
    if array is None:
        return None
    shape = (drafts, config.vocab_size)
    if array.reshape(-1, array.shape[-1]).shape != shape:
        raise RequestError(f"draft_logits is {list(array.shape)}, it must be {list(shape)}")
    return array.reshape(shape).astype(np.float32)


def _threshold(inputs: Inputs) -> float | None:
    value = inputs.scalar("draft_acceptance_threshold")
    if value is not None and not 0.0 < value <= 1.0:
        raise RequestError(f"draft_acceptance_threshold {value:g} must be in (0, 1]")
    return None if value is None else float(value)


def _lookahead(inputs: Inputs) -> tuple[int, int, int] | None:
    names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
    values = [inputs.scalar(name) for name in names]
    if values == [None] * 3:
        return None
    if None in values:
        raise RequestError(f"{', '.join(names)} go together; send all three or none")
    window, ngram, verification = (int(value) for value in values)
    if window < 1 or ngram < 1 or verification < 0:
        raise RequestError(
            f"{', '.join(names)} must be at least 1, 1 and 0, "
            f"not {window}, {ngram}, {verification}"
        )
    return window, ngram, verification
