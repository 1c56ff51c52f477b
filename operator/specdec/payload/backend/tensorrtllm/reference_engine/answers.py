"""The tensors of an answer, as plain arrays: no Triton in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .request import Request, Update

# What makes an output out of request, update, row and whether the prompt is left out; None where
# the request did not ask for it.
_Made = npt.NDArray[Any] | None


def _length(request: Request, update: Update, exclude: bool) -> int:
    """Tokens of the answer, with those of the prompt where it begins with them."""
    whole = not request.streaming and not exclude
    return len(update.tokens) + (request.prompt.size if whole else 0)


def _output_ids(request: Request, update: Update, _: int, exclude: bool) -> _Made:
    tokens = np.empty(_length(request, update, exclude), np.int32)
    prompt = tokens.size - len(update.tokens)
    tokens[:prompt] = request.prompt[:prompt]
    tokens[prompt:] = update.tokens
    return tokens.reshape(1, 1, -1)


def _output_log_probs(request: Request, update: Update, _: int, __: bool) -> _Made:
    probs = update.log_probs if request.want_log_probs else [0.0] * len(update.tokens)
    return np.array(probs, np.float32).reshape(1, 1, -1)


def _context_logits(_: Request, update: Update, __: int, ___: bool) -> _Made:
    context = update.context_logits
    return np.zeros((1, 1, 1), np.float32) if context is None else context[None]


def _generation_logits(_: Request, update: Update, __: int, ___: bool) -> _Made:
    rows = update.generation_logits
    if rows:
        return np.stack(rows).astype(np.float32)[None, None]
    return np.zeros((1, 1, len(update.tokens), 1), np.float32)


def _integer(value: int) -> npt.NDArray[np.int32]:
    return np.array([[value]], np.int32)


def _number(value: float) -> npt.NDArray[np.float32]:
    return np.array([[value]], np.float32)


OUTPUTS: dict[str, Callable[[Request, Update, int, bool], _Made]] = {
    "output_ids": _output_ids,
    "sequence_length": lambda asked, news, _, exclude: _integer(_length(asked, news, exclude)),
    "cum_log_probs": lambda _, news, *__: _number(news.cum_log_prob),
    "output_log_probs": _output_log_probs,
    "context_logits": _context_logits,
    "generation_logits": _generation_logits,
    "batch_index": lambda _, __, row, ___: _integer(row),
    "sequence_index": lambda *_: _integer(0),
    "acceptance_rate": lambda _, news, *__: _number(
        news.accepted / news.drafted if news.drafted else 0.0
    ),
    "total_accepted_draft_tokens": lambda _, news, *__: _integer(news.accepted),
    "total_draft_tokens": lambda _, news, *__: _integer(news.drafted),
    "kv_cache_reused_blocks": lambda _, news, *__: _integer(news.reused),
    "num_input_tokens": lambda asked, *_: (
        _integer(asked.prompt.size) if asked.want_input_count else None
    ),
    "num_output_tokens": lambda asked, news, *_: (
        _integer(len(news.tokens)) if asked.want_output_count else None
    ),
}


def answer(
    request: Request, update: Update, row: int, exclude_input: bool, wanted: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return the wanted output tensors of one update, batch and beam dimensions first.

    A streamed update holds its new tokens only; a whole answer begins with the prompt unless
    `exclude_input`. The counts of tokens are there only where the request asked for them.
    """
    result = {}
    for name in wanted:
        make = OUTPUTS.get(name)
        array = None if make is None else make(request, update, row, exclude_input)
        if array is not None:
            result[name] = array
    return result
