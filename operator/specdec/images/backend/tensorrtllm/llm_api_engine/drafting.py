"""Drafts without a model: n-grams, and the longest suffix that occurred before."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Protocol


class Drafter(Protocol):
    """Proposes tokens for one sequence."""

    def propose(self, tokens: list[int], length: int) -> list[int]:
        """At most `length` tokens that may follow `tokens`, which only grow between calls."""

    def close(self) -> None:
        """The sequence has ended."""


class NGramPool:
    """What followed each n-gram, as positions in sequences, the oldest first."""

    def __init__(self, size: int, *, keep_all: bool, use_oldest: bool) -> None:
        self.size = size
        self._keep_all = keep_all
        self._index = 0 if use_oldest else -1
        self._places: dict[tuple[int, ...], list[tuple[list[int], int]]] = {}
        self._lock = Lock()

    def learn(self, tokens: list[int], start: int) -> None:
        """Add every n-gram that ends at or after `start`, and before the last token."""
        with self._lock:
            for end in range(max(start, 1), len(tokens)):
                for size in range(1, min(self.size, end) + 1):
                    places = self._places.setdefault(tuple(tokens[end - size : end]), [])
                    if not self._keep_all:
                        places.clear()
                    places.append((tokens, end))

    def find(self, tokens: Sequence[int], length: int) -> list[int]:
        """What followed the longest n-gram at the end of `tokens`."""
        with self._lock:
            for size in range(min(self.size, len(tokens)), 0, -1):
                places = self._places.get(tuple(tokens[-size:]))
                if places:
                    source, end = places[self._index]
                    return source[end : end + length]
        return []


class NGrams:
    """Drafts from a pool, which is the sequence's own or shared."""

    def __init__(self, pool: NGramPool) -> None:
        self._pool = pool
        self._known: list[int] = []

    def propose(self, tokens: list[int], length: int) -> list[int]:
        """What followed the longest n-gram."""
        start = len(self._known)
        self._known += tokens[start:]
        self._pool.learn(self._known, start)
        return self._pool.find(self._known, length)

    def close(self) -> None:
        """Do nothing: a pool of a single sequence ends with that sequence."""


class SuffixAutomaton:
    """The suffix automaton of a sequence (Blumer et al. 1985), built token by token."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._length = [0]
        self._link = [-1]
        self._next: list[dict[int, int]] = [{}]
        # The position after the first occurrence of a state's substrings.
        self._end = [0]
        self._last = 0

    def extend(self, token: int) -> None:
        """Append a token; the amortized time is constant."""
        self.tokens.append(token)
        current = self._state(self._length[self._last] + 1, len(self.tokens))
        state = self._last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = current
            state = self._link[state]
        if state < 0:
            self._link[current] = 0
        else:
            self._link[current] = self._split(state, token)
        self._last = current

    def continuation(self, length: int, longest: int = -1) -> list[int]:
        """What followed the longest suffix that occurred before; empty if none did.

        `longest` is the maximum length of the suffix in tokens; -1 is no limit.
        """
        state = self._link[self._last] if self._last else 0
        if state <= 0:
            return []
        while 0 < longest <= self._length[self._link[state]]:
            state = self._link[state]
        return self.tokens[self._end[state] : self._end[state] + length]

    def after(self, suffix: Sequence[int], length: int) -> tuple[int, list[int]]:
        """The longest end of `suffix` that is in this sequence: its size and what followed it."""
        for start in range(len(suffix)):
            state = self._walk(suffix[start:])
            following = self.tokens[self._end[state] : self._end[state] + length] if state else []
            if following:
                return len(suffix) - start, following
        return 0, []

    def _walk(self, tokens: Sequence[int]) -> int:
        """The state of a substring; 0 if it does not occur."""
        state = 0
        for token in tokens:
            if token not in self._next[state]:
                return 0
            state = self._next[state][token]
        return state

    def _split(self, state: int, token: int) -> int:
        target = self._next[state][token]
        if self._length[target] == self._length[state] + 1:
            return target
        clone = self._state(self._length[state] + 1, self._end[target])
        self._next[clone] = dict(self._next[target])
        self._link[clone] = self._link[target]
        self._link[target] = clone
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _state(self, length: int, end: int) -> int:
        self._length.append(length)
        self._link.append(-1)
        self._next.append({})
        self._end.append(end)
        return len(self._length) - 1


class SuffixPool:
    """The automata of sequences that have ended; the oldest are dropped first."""

    def __init__(self, size: int) -> None:
        self._automata: deque[SuffixAutomaton] = deque(maxlen=size)
        self._lock = Lock()

    def add(self, automaton: SuffixAutomaton) -> None:
        """Share a sequence that has ended."""
        with self._lock:
            self._automata.append(automaton)

    def find(self, suffix: Sequence[int], length: int) -> list[int]:
        """What followed the longest end of `suffix` in any sequence."""
        with self._lock:
            known = list(self._automata)
        matches = [automaton.after(suffix, length) for automaton in known]
        return max(matches, default=(0, []), key=lambda match: match[0])[1]


class Suffixes:
    """Drafts from the sequence's own automaton, else from a pool of others."""

    # Tokens that are compared with other sequences.
    _TAIL = 32

    def __init__(self, longest: int, pool: SuffixPool | None) -> None:
        self._longest = longest
        self._pool = pool
        self._own = SuffixAutomaton()

    def propose(self, tokens: list[int], length: int) -> list[int]:
        """What followed the longest suffix."""
        for token in tokens[len(self._own.tokens) :]:
            self._own.extend(token)
        drafts = self._own.continuation(length, self._longest)
        if drafts or self._pool is None:
            return drafts
        tail = self._longest if self._longest > 0 else self._TAIL
        return self._pool.find(tokens[-tail:], length)

    def close(self) -> None:
        """Share the sequence, if there is a pool."""
        if self._pool is not None:
            self._pool.add(self._own)
