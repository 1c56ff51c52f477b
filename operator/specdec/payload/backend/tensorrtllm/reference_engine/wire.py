"""The tensors of a Triton request and answer, as plain arrays: no Triton in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .config import EngineConfig
from .errors import RequestError
from .request import Request, Update
from .sampling import Sampling
from .weights import Floats
from .words import parse

Arrays = Mapping[str, npt.NDArray[Any]]


class Inputs:
    """One row of a request's batch. Every look-up names the tensor when it complains."""

    def __init__(self, arrays: Arrays, row: int) -> None:
        self._arrays = arrays
        self._row = row

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """Return the row of a tensor, without the batch dimension, or None where it is absent."""
        array = self._arrays.get(name)
        if array is None or array.size == 0:
            return None
        if self._row >= array.shape[0]:
            raise RequestError(f"{name} has {array.shape[0]} rows, fewer than input_ids")
        return np.asarray(array[self._row])

    def scalar(self, name: str) -> Any:
        """Return the one value of a tensor, or None where it is absent."""
        array = self.array(name)
        if array is None:
            return None
        if array.size != 1:
            raise RequestError(f"{name} must hold one value a row, not {array.size}")
        return array.reshape(-1)[0].item()

    def integer(self, name: str, default: int) -> int:
        """Return a whole number."""
        value = self.scalar(name)
        return default if value is None else int(value)

    def number(self, name: str, default: float) -> float:
        """Return a decimal number that is finite."""
        value = self.scalar(name)
        if value is None:
            return default
        if not np.isfinite(value):
            raise RequestError(f"{name} must be finite, not {value}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.scalar(name)
        return default if value is None else bool(value)


def parse_request(arrays: Arrays, row: int, config: EngineConfig) -> Request:
    """Read one row of a request's batch.

    Args:
        arrays: input tensors by name, batch dimension first.

    Raises:
        RequestError: a tensor is missing, has a wrong shape or a value out of range.
    """
    inputs = Inputs(arrays, row)
    _refuse_unsupported(inputs)
    prompt = _ids(inputs, "input_ids", config.vocab_size)
    length = inputs.integer("input_lengths", prompt.size)
    if not 1 <= length <= prompt.size:
        raise RequestError(f"input_lengths {length} must be between 1 and {prompt.size}")
    max_new = inputs.scalar("request_output_len")
    if max_new is None or int(max_new) < 1:
        raise RequestError(f"request_output_len must be at least 1, not {max_new}")
    draft = _ids(inputs, "draft_input_ids", config.vocab_size)
    stop = inputs.array("stop_words_list")
    return Request(
        prompt=prompt[:length],
        max_new=int(max_new),
        rules=_sampling(inputs, config),
        stop_words=() if stop is None else parse(stop, "stop_words_list"),
        draft=draft if draft.size else None,
        draft_logits=_draft_logits(inputs, draft.size, config),
        threshold=_threshold(inputs),
        streaming=inputs.flag("streaming"),
        want_log_probs=inputs.flag("return_log_probs"),
        want_context_logits=inputs.flag("return_context_logits"),
        want_generation_logits=inputs.flag("return_generation_logits"),
        want_input_count=inputs.flag("return_num_input_tokens"),
        want_output_count=inputs.flag("return_num_output_tokens"),
        lookahead=_lookahead(inputs),
    )


def _refuse_unsupported(inputs: Inputs) -> None:
    for name in ("beam_width", "num_return_sequences"):
        value = inputs.integer(name, 1)
        if value > 1:
            raise RequestError(f"{name} {value} must be 1: the Reference backend has no beams")
    for name in ("prompt_embedding_table", "lora_task_id", "guided_decoding_guide_type"):
        if inputs.array(name) is not None:
            raise RequestError(f"{name} is not in the Reference backend; leave it out")


def _ids(inputs: Inputs, name: str, vocabulary: int) -> npt.NDArray[np.int64]:
    array = inputs.array(name)
    if array is None:
        if name == "input_ids":
            raise RequestError("input_ids is missing or empty; send at least one token")
        return np.empty(0, np.int64)
    ids = array.reshape(-1).astype(np.int64)
    wrong = (ids < 0) | (ids >= vocabulary)
    if wrong.any():
        raise RequestError(
            f"{name} holds {int(ids[wrong][0])}, outside the vocabulary of {vocabulary}"
        )
    return ids


def _sampling(inputs: Inputs, config: EngineConfig) -> Sampling:
    bad, bias = inputs.array("bad_words_list"), inputs.array("embedding_bias")
    if bias is not None and bias.size != config.vocab_size:
        raise RequestError(
            f"embedding_bias has {bias.size} values, the vocabulary {config.vocab_size}"
        )
    seed = inputs.integer("seed", inputs.integer("random_seed", 0))
    rules = Sampling(
        top_k=inputs.integer("runtime_top_k", 0),
        top_p=inputs.number("runtime_top_p", 0.0),
        temperature=inputs.number("temperature", 1.0),
        repetition_penalty=inputs.number("repetition_penalty", 1.0),
        presence_penalty=inputs.number("presence_penalty", 0.0),
        frequency_penalty=inputs.number("frequency_penalty", 0.0),
        seed=seed,
        end_id=inputs.integer("end_id", -1),
        min_length=inputs.integer("min_tokens", inputs.integer("min_length", 0)),
        bad_words=() if bad is None else parse(bad, "bad_words_list"),
        bias=None if bias is None else bias.reshape(-1).astype(np.float32),
    )
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
    wanted = (drafts, config.vocab_size)
    if array.reshape(-1, array.shape[-1]).shape != wanted:
        raise RequestError(f"draft_logits is {list(array.shape)}, it must be {list(wanted)}")
    return array.reshape(wanted).astype(np.float32)


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


def answer(request: Request, update: Update, row: int, exclude_input: bool) -> dict[str, Any]:
    """Return the output tensors of one update, batch and beam dimensions first.

    A streamed update holds its new tokens only; a whole answer begins with the prompt unless
    `exclude_input`.
    """
    tokens = np.array(update.tokens, np.int32)
    if not request.streaming and not exclude_input:
        tokens = np.concatenate([request.prompt.astype(np.int32), tokens])
    count = len(update.tokens)
    vocabulary = update.generation_logits[0].size if update.generation_logits else 1
    logits = np.zeros((1, 1, count, vocabulary), np.float32)
    for index, vector in enumerate(update.generation_logits):
        logits[0, 0, index] = vector
    context = update.context_logits
    probs = update.log_probs if request.want_log_probs else [0.0] * count
    rate = update.accepted / update.drafted if update.drafted else 0.0
    tensors = {
        "output_ids": tokens.reshape(1, 1, -1),
        "sequence_length": np.array([[tokens.size]], np.int32),
        "cum_log_probs": np.array([[update.cum_log_prob]], np.float32),
        "output_log_probs": np.array(probs, np.float32).reshape(1, 1, -1),
        "context_logits": np.zeros((1, 1, 1), np.float32) if context is None else context[None],
        "generation_logits": logits,
        "batch_index": np.array([[row]], np.int32),
        "sequence_index": np.zeros((1, 1), np.int32),
        "acceptance_rate": np.array([[rate]], np.float32),
        "total_accepted_draft_tokens": np.array([[update.accepted]], np.int32),
        "total_draft_tokens": np.array([[update.drafted]], np.int32),
        "kv_cache_reused_blocks": np.array([[update.reused]], np.int32),
    }
    if request.want_input_count:
        tensors["num_input_tokens"] = np.array([[request.prompt.size]], np.int32)
    if request.want_output_count:
        tensors["num_output_tokens"] = np.array([[count]], np.int32)
    return tensors
