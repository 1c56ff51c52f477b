"""The Llama forward pass over several sequences at once, in float32 NumPy.

The build folds operations into the weights of the engine file (`images/build/convert.py`). Norm
weights and the attention scale are inside the projections. Rotary pairs are adjacent, so that one
complex product rotates them. The signs of the gate and up projections are flipped, so that SiLU
needs no negation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .config import EngineConfig
from .kv import KVBuffer, Tokens
from .weights import Floats

# Rows of a block of the canonical pass. Any fixed number makes the pass a pure function of the
# tokens. `Matrix.single_rows` is always less, so that all products of the pass are of one kind.
CANONICAL_ROWS = 32


@dataclass
class Rows:
    """The rows that one sequence adds to a step.

    Attributes:
        buffer: its cache; the rows' keys and values go to columns `length`, `length + 1`, ...
        tokens: [rows] ids.
        positions: [rows] absolute positions, or None where they continue from `length`.
        mask: [rows, rows] additive, 0 where a row sees another, -inf where not; None is causal.
        logit_rows: how many of the last rows need logits.
    """

    buffer: KVBuffer
    tokens: Tokens
    logit_rows: int
    positions: npt.NDArray[np.int64] | None = None
    mask: Floats | None = None


class Matrix:
    """A projection stored in blocks of columns, [blocks, inputs, width].

    With AVX-512, OpenBLAS has a fast path for small products. With older kernels, a product of a
    few rows takes several times longer than a product for each row. `single_rows` is the number of
    rows up to which one product per row is faster on this machine.
    """

    single_rows = 1

    def __init__(self, blocks: Floats, columns: int) -> None:
        self.blocks = blocks
        self.columns = columns
        self._by_row = blocks[:, None]
        self._width = blocks.shape[0] * blocks.shape[2]

    def __call__(self, x: Floats) -> Floats:
        """Multiply [rows, inputs] into [rows, columns]."""
        rows = x.shape[0]
        if rows == 1:
            product: Floats = np.matmul(x, self.blocks)
            return product.reshape(1, self._width)[:, : self.columns]
        if rows <= self.single_rows:
            product = np.matmul(x[None, :, None, :], self._by_row)[:, :, 0]
        else:
            product = np.matmul(x, self.blocks)
        return product.transpose(1, 0, 2).reshape(rows, self._width)[:, : self.columns]


@dataclass(frozen=True)
class Layer:
    """One decoder layer's projections."""

    attention_in: Matrix
    attention_out: Matrix
    mlp_in: Matrix
    mlp_out: Matrix


class Llama:
    """A loaded engine.

    Attributes:
        config: its shape.
        noise: the relative rounding error of a logit. Two logits that differ by less than this
            times the largest one may change order when the matrix products have other shapes.
    """

    def __init__(self, config: EngineConfig, weights: Mapping[str, Floats]) -> None:
        self.config = config
        self.noise = 16 * 2.0**-24 * math.sqrt(config.layers * config.hidden_size)
        self._embedding = weights["embedding"]
        width = (config.heads + 2 * config.kv_heads) * config.head_size
        self._layers = [
            Layer(
                Matrix(weights[f"layers.{index}.attention_in"], width),
                Matrix(weights[f"layers.{index}.attention_out"], config.hidden_size),
                Matrix(weights[f"layers.{index}.mlp_in"], 2 * config.intermediate_size),
                Matrix(weights[f"layers.{index}.mlp_out"], config.hidden_size),
            )
            for index in range(config.layers)
        ]
        self._head = Matrix(weights["head"], config.vocab_size)
        self._rotation = rotations(config)
        self._causal = np.triu(np.full((256, 256), -np.inf, np.float32), 1)
        Matrix.single_rows = _measure_single_rows(self._layers[0].attention_in)

    def forward(self, batch: Sequence[Rows]) -> list[Floats]:
        """Compute one step, writing keys and values but leaving every buffer's `length` alone.

        Returns:
            for each sequence [logit_rows, vocabulary] logits of its last rows.
        """
        if len(batch) == 1:
            tokens = batch[0].tokens
            rotation = self._rotate(batch[0])
        else:
            tokens = np.concatenate([rows.tokens for rows in batch])
            rotation = np.concatenate([self._rotate(rows) for rows in batch])
        hidden = self._embedding[tokens]
        with np.errstate(
            over="ignore"
        ):  # exp of a large gate is inf, and 1 / inf the right answer
            for index, layer in enumerate(self._layers):
                self._attend(index, layer, hidden, rotation, batch)
                self._feed(layer, hidden)
        return self._logits(hidden, batch)

    def _rotate(self, rows: Rows) -> Any:
        if rows.positions is not None:
            return self._rotation[rows.positions]
        start = rows.buffer.length
        return self._rotation[start : start + rows.tokens.size]

    def _attend(
        self, index: int, layer: Layer, hidden: Floats, rotation: Any, batch: Sequence[Rows]
    ) -> None:
        config = self.config
        qkv = layer.attention_in(self._normalise(hidden))
        rotated = (config.heads + config.kv_heads) * config.head_size
        pairs = qkv[:, :rotated].view(np.complex64)
        pairs = pairs.reshape(pairs.shape[0], -1, config.head_size // 2)
        pairs *= rotation
        if len(batch) == 1:
            mixed = self._mix(index, qkv, batch[0])
        else:
            mixed = np.empty((qkv.shape[0], config.heads * config.head_size), np.float32)
            start = 0
            for rows in batch:
                end = start + rows.tokens.size
                mixed[start:end] = self._mix(index, qkv[start:end], rows)
                start = end
        hidden += layer.attention_out(mixed)

    def _mix(self, index: int, qkv: Floats, rows: Rows) -> Floats:
        """Attention of one sequence: [rows, q + k + v] to [rows, heads * head_size]."""
        config, buffer = self.config, rows.buffer
        count, kv_heads, size = qkv.shape[0], config.kv_heads, config.head_size
        groups = config.heads // kv_heads
        split = config.heads * size
        start, end = buffer.length, buffer.length + count
        fresh = qkv[:, split:].reshape(count, 2, kv_heads, size)
        keys, values = buffer.keys[index], buffer.values[index]
        keys[:, :, start:end] = fresh[:, 0].transpose(1, 2, 0)
        values[:, start:end] = fresh[:, 1].transpose(1, 0, 2)
        queries = qkv[:, :split].reshape(count, kv_heads, groups, size)
        if count == 1:
            scores = np.matmul(queries[0], keys[:, :, :end])
        else:
            queries = queries.transpose(1, 0, 2, 3).reshape(kv_heads, count * groups, size)
            scores = np.matmul(queries, keys[:, :, :end])
            mask = self._causal_mask(count) if rows.mask is None else rows.mask
            blocks = scores.reshape(kv_heads, count, groups, end)
            blocks[:, :, :, start:] += mask[:, None, :]
        scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
        np.exp(scores, out=scores)
        mixed: Floats = np.matmul(scores, values[:, :end])
        mixed /= np.add.reduce(scores, axis=2, keepdims=True)
        if count == 1:
            return mixed.reshape(1, split)
        mixed = mixed.reshape(kv_heads, count, groups, size)
        return mixed.transpose(1, 0, 2, 3).reshape(count, split)

    def _feed(self, layer: Layer, hidden: Floats) -> None:
        both = layer.mlp_in(self._normalise(hidden))
        gate, up = (
            both[:, : self.config.intermediate_size],
            both[:, self.config.intermediate_size :],
        )
        up *= gate
        np.exp(gate, out=gate)
        gate += 1.0
        up /= gate
        hidden += layer.mlp_out(up)

    def _normalise(self, hidden: Floats) -> Floats:
        """Root mean square norm (Zhang and Sennrich 2019); its weights are in the projections."""
        scale = np.matmul(hidden[:, None, :], hidden[:, :, None])[:, :, 0]
        scale *= 1.0 / self.config.hidden_size
        scale += self.config.norm_epsilon
        np.sqrt(scale, out=scale)
        normal: Floats = np.divide(hidden, scale)
        return normal

    def _logits(self, hidden: Floats, batch: Sequence[Rows]) -> list[Floats]:
        total = hidden.shape[0]
        counts = [rows.logit_rows for rows in batch]
        if sum(counts) < total:
            ends = np.cumsum([rows.tokens.size for rows in batch])
            picked = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
            hidden = hidden[np.concatenate(picked)]
        if hidden.shape[0] == 0:
            return [np.empty((0, self.config.vocab_size), np.float32) for _ in batch]
        logits = self._head(self._normalise(hidden))
        if len(batch) == 1:
            return [logits]
        return np.split(logits, np.cumsum(counts)[:-1])

    def _causal_mask(self, rows: int) -> Floats:
        if rows > self._causal.shape[0]:
            self._causal = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
        return self._causal[:rows, :rows]

    def canonical(self, tokens: Tokens) -> Floats:
        """Return [vocabulary] logits after `tokens`, by a pass that depends on nothing else.

        A matrix product rounds differently with other numbers of rows, so logits depend a little
        on what shared the step. This pass runs over the whole sequence in blocks of one fixed
        size, always with the same kernels: equal tokens give equal bits, whatever is in flight.
        """
        blocks = -(-tokens.size // CANONICAL_ROWS)
        padded = np.zeros(blocks * CANONICAL_ROWS, np.int64)
        padded[: tokens.size] = tokens
        buffer = KVBuffer(self.config, padded.size)
        logits: Floats = np.empty((0, 0), np.float32)
        for start in range(0, padded.size, CANONICAL_ROWS):
            block = padded[start : start + CANONICAL_ROWS]
            last = start + CANONICAL_ROWS == padded.size
            rows = Rows(buffer, block, logit_rows=CANONICAL_ROWS if last else 0)
            logits = self.forward([rows])[0]
            buffer.length += CANONICAL_ROWS
        row: Floats = logits[(tokens.size - 1) % CANONICAL_ROWS]
        return row


def rotations(config: EngineConfig) -> npt.NDArray[np.complex64]:
    """Rotary position embedding (Su et al. 2021) as complex factors.

    Returns:
        [positions, 1, head_size / 2]; with some positions beyond the longest sequence, for rows
        that speculate past its end.
    """
    half = config.head_size // 2
    inverse = config.rotary_base ** (-np.arange(half, dtype=np.float64) / half)
    if config.rotary_scaling is not None:
        inverse = _scale_llama3(inverse, config.rotary_scaling)
    angles = np.arange(config.max_seq_len + 1024)[:, None] * inverse
    factors: npt.NDArray[np.complex64] = np.exp(1j * angles).astype(np.complex64)
    return factors[:, None, :]


def _scale_llama3(
    inverse: npt.NDArray[np.float64], scaling: Mapping[str, Any]
) -> npt.NDArray[np.float64]:
    """Scale low frequencies as Llama 3.1 does, with a blend between its two wavelength limits."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * inverse / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    scaled: npt.NDArray[np.float64] = inverse / factor * (1 - blend) + inverse * blend
    return scaled


def _measure_single_rows(matrix: Matrix) -> int:
    """The number of rows up to which one product per row is faster than one for all rows."""
    best = 1
    for rows in (2, 4, 8, 16):
        x = np.ones((rows, matrix.blocks.shape[1]), np.float32)
        by_row = _fastest(x[None, :, None, :], matrix.blocks[:, None])
        if by_row >= _fastest(x, matrix.blocks):
            break
        best = rows
    return best


def _fastest(first: Floats, second: Floats) -> float:
    def once() -> float:
        start = time.perf_counter()
        np.matmul(first, second)
        return time.perf_counter() - start

    return min(once() for _ in range(20))
