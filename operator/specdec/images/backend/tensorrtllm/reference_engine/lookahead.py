"""Lookahead decoding (Fu et al. 2024): the target drafts n-grams itself and verifies them.

Every step carries two branches beside the current token. The lookahead branch is a Jacobi
iteration. It has `window` columns, whose levels hold the guesses of the last `ngram - 1` steps. A
step's predictions complete the n-grams that run through the levels. The verification branch tries
up to `verification` n-grams from the pool that begin with the current token. What is accepted
equals what the target would have chosen one token at a time.

Rows of a step: level 0 (the current token, then guesses for the next `window - 1` positions), then
each upper level with one row per column, then the candidates. Together
(window + verification)(ngram - 1).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .config import Lookahead
from .kv import Tokens
from .weights import Floats

# N-grams remembered per first token; the oldest go first.
_PER_TOKEN = 32


@dataclass(frozen=True)
class Branches:
    """One step's rows.

    Attributes:
        tokens: [rows] ids; row 0 is the current token.
        offsets: [rows] positions relative to the current token's.
        mask: [rows, rows] additive attention mask among them.
        candidates: how many n-grams are tried; `depth` tokens each.
        first: the row of the first candidate's first token.
        top: rows of the highest level, one a column, whose predictions close n-grams.
    """

    tokens: Tokens
    offsets: npt.NDArray[np.int64]
    mask: Floats
    candidates: int
    depth: int
    first: int
    top: npt.NDArray[np.int64]

    def row(self, candidate: int, depth: int) -> int:
        """Return the row that holds a candidate's token at a depth."""
        return self.first + candidate * self.depth + depth

    def token(self, candidate: int, depth: int) -> int:
        """Return a candidate's token at a depth."""
        return int(self.tokens[self.row(candidate, depth)])


class Proposer:
    """The window and the pool of one sequence."""

    def __init__(self, shape: Lookahead, prompt: Tokens) -> None:
        self._shape = shape
        self._levels: npt.NDArray[np.int64] = np.empty((shape.ngram - 1, shape.window), np.int64)
        # A Jacobi iteration can start from any guesses; tokens of the prompt are likely ones.
        self._noise = np.random.default_rng(prompt.size)
        self._levels[:] = self._noise.choice(prompt, self._levels.shape)
        self._pool: dict[int, OrderedDict[tuple[int, ...], None]] = {}
        for start in range(prompt.size - shape.ngram + 1):
            self._remember(tuple(prompt[start : start + shape.ngram].tolist()))

    def _remember(self, ngram: tuple[int, ...]) -> None:
        known = self._pool.setdefault(ngram[0], OrderedDict())
        known[ngram[1:]] = None
        known.move_to_end(ngram[1:])
        if len(known) > _PER_TOKEN:
            known.popitem(last=False)

    def propose(self, tokens: Tokens) -> Branches:
        """Lay out the next step's rows after `tokens`, whose last one is the current token."""
        shape, depth = self._shape, self._shape.ngram - 1
        self._levels[0, 0] = tokens[-1]
        known = list(self._pool.get(int(tokens[-1]), ()))
        newest = known[::-1][: shape.verification]
        mask, offsets = _layout(shape, len(newest))
        flat = [self._levels.ravel(), np.array(newest, np.int64).ravel()]
        first = depth * shape.window
        return Branches(
            tokens=np.concatenate(flat),
            offsets=offsets,
            mask=mask,
            candidates=len(newest),
            depth=depth,
            first=first,
            top=np.arange(first - shape.window, first),
        )

    def learn(self, branches: Branches, logits: Floats, tokens: Tokens, accepted: int) -> None:
        """Close this step's n-grams and move the window on by the accepted tokens."""
        shape = self._shape
        closing = logits[branches.top].argmax(axis=1)
        for column in range(shape.window):
            self._remember((*self._levels[:, column].tolist(), int(closing[column])))
        for start in range(
            max(0, tokens.size - accepted - shape.ngram), tokens.size - shape.ngram
        ):
            self._remember(tuple(tokens[start + 1 : start + 1 + shape.ngram].tolist()))
        self._levels = np.concatenate([self._levels[1:], closing[None, :]])
        # A level's guesses are one position later than those of the level below. So one accepted
        # token needs no shift.
        shift = min(accepted - 1, shape.window)
        if shift > 0:
            kept = self._levels[:, shift:]
            filler = self._noise.choice(tokens, (shape.ngram - 1, shift))
            self._levels = np.concatenate([kept, filler], axis=1)


@functools.lru_cache(maxsize=256)
def _layout(shape: Lookahead, candidates: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the mask and the positions of a step's rows.

    A level-0 row sees level 0 up to itself. A row above sees level 0 up to its column, and its
    column's levels up to itself. A candidate's row sees the current token and its own beginning.
    """
    window, depth = shape.window, shape.ngram - 1
    first = window * depth
    rows = first + candidates * depth
    sees = np.zeros((rows, rows), bool)
    offsets = np.empty(rows, np.int64)
    for level in range(depth):
        for column in range(window):
            row = level * window + column
            sees[row, : column + 1] = True
            sees[row, column : row + 1 : window] = True
            offsets[row] = column + level
    for candidate in range(candidates):
        start = first + candidate * depth
        for index in range(depth):
            sees[start + index, 0] = True
            sees[start + index, start : start + index + 1] = True
            offsets[start + index] = index + 1
    return np.where(sees, np.float32(0.0), np.float32(-np.inf)), offsets
