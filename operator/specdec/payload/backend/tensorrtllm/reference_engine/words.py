"""Stop and bad words: lists of token sequences as Triton requests carry them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RequestError
from .kv import Tokens

Word = tuple[int, ...]
_NOTHING = np.empty(0, np.int64)


class Words(tuple[Word, ...]):
    """Words of token ids, indexed at the first use: a step costs the same for one and for many."""

    @cached_property
    def by_length(self) -> Mapping[int, frozenset[Word]]:
        """The words of each length."""
        lengths: dict[int, set[Word]] = {}
        for word in self:
            lengths.setdefault(len(word), set()).add(word)
        return {length: frozenset(words) for length, words in sorted(lengths.items())}

    @cached_property
    def completions(self) -> Mapping[int, Mapping[Word, npt.NDArray[np.int64]]]:
        """The last ids of words behind all their others, by the number of those."""
        lengths: dict[int, dict[Word, set[int]]] = {}
        for word in self:
            behind = lengths.setdefault(len(word) - 1, {})
            behind.setdefault(word[:-1], set()).add(word[-1])
        return {
            length: {word: np.array(sorted(ids), np.int64) for word, ids in behind.items()}
            for length, behind in sorted(lengths.items())
        }


NO_WORDS = Words()


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
    ids: list[int] = table[0].tolist()
    words, start = [], 0
    for end in table[1].tolist():
        if end < 0:
            break
        if end <= start or end > len(ids):
            raise RequestError(f"{name}: offset {end} after {start} does not fit {len(ids)} ids")
        words.append(tuple(ids[start:end]))
        start = end
    return Words(words)


def ends_with(tokens: Tokens, words: Words) -> bool:
    """Say whether the sequence ends with one of the words."""
    if not words:
        return False
    tail = _tail(tokens, max(words.by_length))
    return any(
        length <= len(tail) and tail[len(tail) - length :] in ending
        for length, ending in words.by_length.items()
    )


def banned(tokens: Tokens, words: Words) -> npt.NDArray[np.int64]:
    """Return the ids that would complete one of the words."""
    if not words:
        return _NOTHING
    tail = _tail(tokens, max(words.completions))
    found = (
        behind.get(tail[len(tail) - length :])
        for length, behind in words.completions.items()
        if length <= len(tail)
    )
    ids = [one for one in found if one is not None]
    return np.concatenate(ids) if ids else _NOTHING


def _tail(tokens: Tokens, most: int) -> Word:
    """The last ids of the sequence."""
    return tuple(tokens[max(tokens.size - most, 0) :].tolist())
