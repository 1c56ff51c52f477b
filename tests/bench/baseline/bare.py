"""A bare NumPy Llama: the baseline for the step times of the Reference engine.

It computes the same mathematics from a Hugging Face checkpoint, without product code: no
requests, no scheduling, and only two fixed arrays as cache. Projections are stored in blocks
[columns / 64, inputs, 64] and the key cache is transposed, as in the figures that it repeats.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Floats = npt.NDArray[np.float32]


def _blocks(weight: Floats) -> Floats:
    outputs, inputs = weight.shape
    padded = np.zeros((-(-outputs // 64) * 64, inputs), np.float32)
    padded[:outputs] = weight
    return np.ascontiguousarray(padded.reshape(-1, 64, inputs).transpose(0, 2, 1))


def _project(x: Floats, blocks: Floats) -> Floats:
    product: Floats = np.matmul(x, blocks)
    return product.transpose(1, 0, 2).reshape(x.shape[0], -1)


class Bare:
    """A model that caches keys and values of one sequence."""

    def __init__(self, checkpoint: Path, capacity: int = 512) -> None:
        self.c = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        weights = {
            name: array.astype(np.float32)
            for name, array in load_file(checkpoint / "model.safetensors").items()
        }
        heads, kv = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        self.heads, self.kv, self.size = heads, kv, self.c["hidden_size"] // heads
        self.embed = weights["model.embed_tokens.weight"]
        self.head = _blocks(weights.get("lm_head.weight", self.embed))
        self.norm = weights["model.norm.weight"]
        self.layers = []
        for index in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{index}."
            qkv = [weights[f"{p}self_attn.{x}_proj.weight"] for x in "qkv"]
            mlp = [weights[f"{p}mlp.{x}_proj.weight"] for x in ("gate", "up")]
            self.layers.append(
                (
                    weights[p + "input_layernorm.weight"],
                    _blocks(np.concatenate(qkv)),
                    _blocks(weights[p + "self_attn.o_proj.weight"]),
                    weights[p + "post_attention_layernorm.weight"],
                    _blocks(np.concatenate(mlp)),
                    _blocks(weights[p + "mlp.down_proj.weight"]),
                )
            )
        shape = (len(self.layers), kv)
        self.keys = np.zeros((*shape, self.size, capacity), np.float32)
        self.values = np.zeros((*shape, capacity, self.size), np.float32)
        base = self.c.get("rope_theta") or self.c["rope_parameters"]["rope_theta"]
        angles = np.arange(capacity)[:, None] * base ** (-np.arange(0, self.size, 2) / self.size)
        self.cos = np.cos(angles).astype(np.float32)[:, None]
        self.sin = np.sin(angles).astype(np.float32)[:, None]

    def _rms(self, x: Floats, weight: Floats) -> Floats:
        scale = np.sqrt((x * x).mean(axis=1, keepdims=True) + self.c["rms_norm_eps"])
        return np.asarray(x / scale * weight, np.float32)

    def _rope(self, x: Floats, start: int, end: int) -> Floats:
        half = self.size // 2
        first, second = x[..., :half], x[..., half:]
        cos, sin = self.cos[start:end], self.sin[start:end]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def step(self, tokens: npt.NDArray[np.int64], start: int) -> Floats:
        """Compute [rows, vocabulary] logits of tokens at `start`, `start + 1`, ..."""
        rows, end = tokens.size, start + tokens.size
        groups, width = self.heads // self.kv, self.heads * self.size
        mask = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
        x = self.embed[tokens]
        for index, (norm1, qkv, out, norm2, gate_up, down) in enumerate(self.layers):
            y = _project(self._rms(x, norm1), qkv)
            q = self._rope(y[:, :width].reshape(rows, self.heads, self.size), start, end)
            rest = y[:, width : width + 2 * self.kv * self.size]
            k, v = rest.reshape(rows, 2, self.kv, self.size).transpose(1, 0, 2, 3)
            self.keys[index, :, :, start:end] = self._rope(k, start, end).transpose(1, 2, 0)
            self.values[index, :, start:end] = v.transpose(1, 0, 2)
            q = q.reshape(rows, self.kv, groups, self.size).transpose(1, 0, 2, 3)
            q = q.reshape(self.kv, rows * groups, self.size)
            scores = np.matmul(q, self.keys[index, :, :, :end]) / np.float32(self.size**0.5)
            if rows > 1:
                scores.reshape(self.kv, rows, groups, end)[..., start:] += mask[:, None]
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed = np.matmul(scores, self.values[index, :, :end])
            mixed = mixed.reshape(self.kv, rows, groups, self.size).transpose(1, 0, 2, 3)
            x = x + _project(mixed.reshape(rows, width), out)
            y = _project(self._rms(x, norm2), gate_up)
            inner = self.c["intermediate_size"]
            gate, up = y[:, :inner], y[:, inner : 2 * inner]
            x = x + _project(gate / (1 + np.exp(-gate)) * up, down)
        return _project(self._rms(x, self.norm), self.head)[:, : self.c["vocab_size"]]
