"""The KV cache: one buffer per sequence; buffers of finished sequences are kept for reuse."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .config import EngineConfig
from .weights import Floats

Tokens = npt.NDArray[np.int64]

# The number of tokens by which a buffer grows. The BLS sends its prefix again in each round, a few
# tokens longer.
BLOCK = 128
# The first tokens of a sequence are its key in the cache. A shorter sequence is cheaper to compute
# than to search.
KEY = 8


class KVBuffer:
    """Keys and values of one sequence.

    Attributes:
        keys: [layers, kv_heads, head_size, capacity], transposed so that scores are one product.
        values: [layers, kv_heads, capacity, head_size].
        tokens: the ids whose keys and values are held, `length` of them.
    """

    def __init__(self, config: EngineConfig, capacity: int) -> None:
        shape = (config.layers, config.kv_heads)
        self._config = config
        self.capacity = capacity
        self.length = 0
        self.tokens: Tokens = np.empty(capacity, np.int64)
        self.keys: Floats = np.empty((*shape, config.head_size, capacity), np.float32)
        self.values: Floats = np.empty((*shape, capacity, config.head_size), np.float32)

    def copy(self, length: int, capacity: int) -> KVBuffer:
        """Return another buffer that holds the first `length` tokens of this one."""
        fresh = KVBuffer(self._config, capacity)
        fresh.length = length
        fresh.tokens[:length] = self.tokens[:length]
        fresh.keys[..., :length] = self.keys[..., :length]
        fresh.values[:, :, :length] = self.values[:, :, :length]
        return fresh

    def move(self, sources: list[int], target: int) -> None:
        """Bring the rows at columns `sources` to the columns from `target` on, in that order."""
        for offset, source in enumerate(sources):
            column = target + offset
            if source != column:
                self.keys[..., column] = self.keys[..., source]
                self.values[:, :, column] = self.values[:, :, source]


@dataclass(frozen=True)
class Reservation:
    """A buffer for a new sequence and how many of its tokens are already in it."""

    buffer: KVBuffer
    reused: int


class KVPool:
    """Limits the tokens in all buffers together, and finds reusable prefixes.

    The least recently finished buffers are evicted first. A sequence takes over the buffer whose
    tokens it continues. It copies the prefix only when a large part of that buffer belongs to
    another continuation.
    """

    def __init__(self, config: EngineConfig, budget: int, reuse: bool) -> None:
        self._config = config
        self._reuse = reuse
        self._idle: OrderedDict[int, KVBuffer] = OrderedDict()
        self._by_key: dict[bytes, list[KVBuffer]] = {}
        self.budget = budget
        self.held = 0

    def capacity_for(self, tokens: int) -> int:
        """Round a length up to whole blocks, not above the budget unless the length itself is."""
        rounded = -(-tokens // BLOCK) * BLOCK
        # A budget of one longest sequence need not consist of whole blocks.
        return rounded if tokens > self.budget else min(rounded, self.budget)

    def reserve(self, prompt: Tokens, needed: int, reusable: int) -> Reservation | None:
        """Find or make a buffer with room for `needed` tokens.

        Args:
            prompt: the sequence's tokens.
            needed: tokens it may grow to.
            reusable: how many of the prompt's tokens may come from another sequence.

        Returns:
            None while the budget is taken by sequences in flight.
        """
        match, shared = self._find(prompt[:reusable])
        capacity = self.capacity_for(needed)
        if match is not None and match.length - shared <= max(16, shared // 2):
            self._forget(match)
            if match.capacity >= needed:
                match.length = shared
                return Reservation(match, shared)
            self.held -= match.capacity
        elif not self._make_room(capacity, keep=match) and match is not None:
            # The prefix of the match is copied below, so its buffer may be evicted too.
            self._forget(match)
            self.held -= match.capacity
        if not self._make_room(capacity, keep=match):
            return None
        self.held += capacity
        if match is None:
            return Reservation(KVBuffer(self._config, capacity), 0)
        return Reservation(match.copy(shared, capacity), shared)

    def release(self, buffer: KVBuffer, keep: bool) -> None:
        """Take back a sequence's buffer, and keep its tokens for reuse if reuse is enabled."""
        if self._reuse and keep and buffer.length >= KEY:
            self._idle[id(buffer)] = buffer
            self._by_key.setdefault(_key(buffer.tokens), []).append(buffer)
        else:
            self.held -= buffer.capacity

    def _find(self, prompt: Tokens) -> tuple[KVBuffer | None, int]:
        best: KVBuffer | None = None
        shared = 0
        if not self._reuse or prompt.size < KEY:
            return None, 0
        for buffer in reversed(self._by_key.get(_key(prompt), [])):
            length = _common(prompt, buffer.tokens[: buffer.length])
            if length > shared:
                best, shared = buffer, length
            if shared == prompt.size:
                break
        return best, shared

    def _forget(self, buffer: KVBuffer) -> None:
        del self._idle[id(buffer)]
        key = _key(buffer.tokens)
        bucket = [other for other in self._by_key[key] if other is not buffer]
        if bucket:
            self._by_key[key] = bucket
        else:
            del self._by_key[key]

    def _make_room(self, capacity: int, keep: KVBuffer | None) -> bool:
        while self.held + capacity > self.budget:
            victim = next((other for other in self._idle.values() if other is not keep), None)
            if victim is None:
                return False
            self._forget(victim)
            self.held -= victim.capacity
        return True


def _key(tokens: Tokens) -> bytes:
    return tokens[:KEY].tobytes()


def _common(first: Tokens, second: Tokens) -> int:
    """Length of the longest common prefix."""
    size = min(first.size, second.size)
    differs = first[:size] != second[:size]
    return int(differs.argmax()) if differs.any() else size
