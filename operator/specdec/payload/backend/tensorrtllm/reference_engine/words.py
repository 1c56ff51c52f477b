"""Stop and bad words: lists of token sequences as Triton requests carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import RequestError
from .kv import Tokens

Words = tuple[tuple[int, ...], ...]


def parse(array: Any, name: str) -> Words:
    """Read one request's word list.

    Args:
        array: [2, n]: all words' ids one after another, and each word's end offset, padded by -1.
        name: the tensor's name, for the error.

    Raises:
        RequestError: the offsets do not lie inside the row of ids.
    """
    table = np.asarray(array)
    if table.ndim != 2 or table.shape[0] != 2:
        raise RequestError(f"{name} must be [2, n], not {list(table.shape)}")
    words, start = [], 0
    for end in (int(offset) for offset in table[1]):
        if end < 0:
            break
        if end <= start or end > table.shape[1]:
            raise RequestError(
                f"{name}: offset {end} after {start} does not fit {table.shape[1]} ids"
            )
        words.append(tuple(int(token) for token in table[0, start:end]))
        start = end
    return tuple(words)


def ends_with(tokens: Tokens, words: Words) -> bool:
    """Say whether the sequence ends with one of the words."""
    return any(
        tokens.size >= len(word) and tuple(tokens[-len(word) :].tolist()) == word for word in words
    )


def banned(tokens: Tokens, words: Words) -> Sequence[int]:
    """Return the ids that would complete one of the words."""
    return [word[-1] for word in words if len(word) == 1 or ends_with(tokens, (word[:-1],))]
