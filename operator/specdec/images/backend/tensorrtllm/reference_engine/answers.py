"""Build the output tensors of a response as plain arrays, without Triton's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .request import Request, Update

# An output tensor; None where the request did not ask for it.
_Output = npt.NDArray[Any] | None


def _length(request: Request, update: Update, exclude: bool) -> int:
    """Tokens in the response, including the prompt where the response repeats it."""
    whole = not request.streaming and not exclude
    return len(update.tokens) + (request.prompt.size if whole else 0)


def _output_ids(request: Request, update: Update, _: int, exclude: bool) -> _Output:
    tokens = np.empty(_length(request, update, exclude), np.int32)
    prompt = tokens.size - len(update.tokens)
    tokens[:prompt] = request.prompt[:prompt]
    tokens[prompt:] = update.tokens
    return tokens.reshape(1, 1, -1)


def _output_log_probs(request: Request, update: Update, _: int, __: bool) -> _Output:
    probs = update.log_probs if request.want_log_probs else [0.0] * len(update.tokens)
    return np.array(probs, np.float32).reshape(1, 1, -1)


def _context_logits(_: Request, update: Update, __: int, ___: bool) -> _Output:
    context = update.context_logits
    return np.zeros((1, 1, 1), np.float32) if context is None else context[None]


def _generation_logits(_: Request, update: Update, __: int, ___: bool) -> _Output:
    rows = update.generation_logits
    if rows:
        return np.stack(rows).astype(np.float32)[None, None]
    return np.zeros((1, 1, len(update.tokens), 1), np.float32)


def _integer(value: int) -> npt.NDArray[np.int32]:
    return np.array([[value]], np.int32)


def _nanoseconds(moment: float) -> npt.NDArray[np.int64]:
    return np.array([[round(moment * 1e9)]], np.int64)


def _number(value: float) -> npt.NDArray[np.float32]:
    return np.array([[value]], np.float32)


# By tensor name: a function of the request, the update, the row and whether to exclude the prompt.
OUTPUTS: dict[str, Callable[[Request, Update, int, bool], _Output]] = {
    "output_ids": _output_ids,
    "sequence_length": lambda request, update, _, exclude: _integer(
        _length(request, update, exclude)
    ),
    "cum_log_probs": lambda _, update, *__: _number(update.cum_log_prob),
    "output_log_probs": _output_log_probs,
    "context_logits": _context_logits,
    "generation_logits": _generation_logits,
    "batch_index": lambda _, __, row, ___: _integer(row),
    "sequence_index": lambda *_: _integer(0),
    "acceptance_rate": lambda _, update, *__: _number(
        update.accepted / update.drafted if update.drafted else 0.0
    ),
    "total_accepted_draft_tokens": lambda _, update, *__: _integer(update.accepted),
    "total_draft_tokens": lambda _, update, *__: _integer(update.drafted),
    "kv_cache_alloc_new_blocks": lambda _, update, *__: _integer(update.usage.new_blocks),
    "kv_cache_reused_blocks": lambda _, update, *__: _integer(update.usage.reused_blocks),
    "kv_cache_alloc_total_blocks": lambda _, update, *__: _integer(
        update.usage.new_blocks + update.usage.reused_blocks
    ),
    "arrival_time_ns": lambda _, update, *__: _nanoseconds(update.usage.arrived),
    "first_scheduled_time_ns": lambda _, update, *__: _nanoseconds(update.usage.scheduled),
    "first_token_time_ns": lambda _, update, *__: _nanoseconds(update.usage.first_token),
    "last_token_time_ns": lambda _, update, *__: _nanoseconds(update.usage.last_token),
    "num_input_tokens": lambda request, *_: (
        _integer(request.prompt.size) if request.want_input_count else None
    ),
    "num_output_tokens": lambda request, update, *_: (
        _integer(len(update.tokens)) if request.want_output_count else None
    ),
}


def answer(
    request: Request, update: Update, row: int, exclude_input: bool, outputs: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return the requested output tensors of one update, batch and beam dimensions first.

    A streamed update holds only its new tokens. A complete response begins with the prompt unless
    `exclude_input`. It holds token counts only where the request asked for them.
    """
    result = {}
    for name in outputs:
        make = OUTPUTS.get(name)
        array = None if make is None else make(request, update, row, exclude_input)
        if array is not None:
            result[name] = array
    return result
