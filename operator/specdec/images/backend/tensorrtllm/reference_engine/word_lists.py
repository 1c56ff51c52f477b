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
_NO_IDS = np.empty(0, np.int64)


class WordList(tuple[Word, ...]):
    """Token sequences, indexed at the first use: a step costs the same for one and for many."""

    @cached_property
    def by_length(self) -> Mapping[int, frozenset[Word]]:
        """All distinct items by their length."""
        lengths: dict[int, set[Word]] = {}
        for word in self:
            lengths.setdefault(len(word), set()).add(word)
        return {length: frozenset(group) for length, group in sorted(lengths.items())}

    @cached_property
    def completions(self) -> Mapping[int, Mapping[Word, npt.NDArray[np.int64]]]:
        """The last ids of items by the prefix before them; prefixes are grouped by length."""
        lengths: dict[int, dict[Word, set[int]]] = {}
        for word in self:
            prefixes = lengths.setdefault(len(word) - 1, {})
            prefixes.setdefault(word[:-1], set()).add(word[-1])
        return {
            length: {prefix: np.array(sorted(ids), np.int64) for prefix, ids in prefixes.items()}
            for length, prefixes in sorted(lengths.items())
        }


EMPTY = WordList()


def parse(array: Any, name: str) -> WordList:
    """Read one request's word list.

    Args:
        array: [2, n]: the ids of all items one after another, and each item's end offset, padded
            by -1.
        name: the tensor's name, for the error.

    Raises:
        RequestError: the offsets do not lie inside the row of ids.
    """
    table = np.asarray(array)
    if table.ndim != 2 or table.shape[0] != 2:
        raise RequestError(f"{name} must be [2, n], not {list(table.shape)}")
    ids: list[int] = table[0].tolist()
    items, start = [], 0
    for end in table[1].tolist():
        if end < 0:
            break
        if end <= start or end > len(ids):
            raise RequestError(f"{name}: offset {end} after {start} does not fit {len(ids)} ids")
        items.append(tuple(ids[start:end]))
        start = end
    return WordList(items)


def ends_with(tokens: Tokens, listed: WordList) -> bool:
    """Return whether the sequence ends with an item of the list."""
    if not listed:
        return False
    tail = _tail(tokens, max(listed.by_length))
    return any(
        length <= len(tail) and tail[len(tail) - length :] in ending
        for length, ending in listed.by_length.items()
    )


def banned(tokens: Tokens, listed: WordList) -> npt.NDArray[np.int64]:
    """Return the ids that would complete an item of the list."""
    if not listed:
        return _NO_IDS
    tail = _tail(tokens, max(listed.completions))
    matches = (
        prefixes.get(tail[len(tail) - length :])
        for length, prefixes in listed.completions.items()
        if length <= len(tail)
    )
    ids = [match for match in matches if match is not None]
    return np.concatenate(ids) if ids else _NO_IDS


def _tail(tokens: Tokens, most: int) -> Word:
    """The last ids of the sequence."""
    return tuple(tokens[max(tokens.size - most, 0) :].tolist())
