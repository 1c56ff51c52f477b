"""Tiny random Llama checkpoints, and a program as short as possible that computes their logits.

The oracle computes in float64, without a cache, from the Hugging Face weights: it shares neither
code nor optimizations with the engine.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Doubles = npt.NDArray[np.float64]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Tiny:
    """The shape of a checkpoint; a larger `gain` of the head makes its choices clearer."""

    vocab: int = 97
    hidden: int = 32
    intermediate: int = 40
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    tied: bool = False
    gain: float = 8.0
    seed: int = 0
    rope_scaling: dict[str, Any] | None = None
    twins: float | None = None

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_scaling": self.rope_scaling,
            "max_position_embeddings": 512,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float32",
        }

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        random = np.random.default_rng(self.seed)
        size = self.hidden // self.heads

        def matrix(rows: int, columns: int, gain: float = 1.0) -> npt.NDArray[np.float32]:
            values = random.standard_normal((rows, columns)) * gain / math.sqrt(columns)
            return values.astype(np.float32)

        def norm() -> npt.NDArray[np.float32]:
            return (1 + 0.1 * random.standard_normal(self.hidden)).astype(np.float32)

        weights = {"model.embed_tokens.weight": matrix(self.vocab, self.hidden, self.gain)}
        for index in range(self.layers):
            p = f"model.layers.{index}."
            weights[p + "input_layernorm.weight"] = norm()
            weights[p + "self_attn.q_proj.weight"] = matrix(self.heads * size, self.hidden, 2.0)
            weights[p + "self_attn.k_proj.weight"] = matrix(self.kv_heads * size, self.hidden, 2.0)
            weights[p + "self_attn.v_proj.weight"] = matrix(self.kv_heads * size, self.hidden)
            weights[p + "self_attn.o_proj.weight"] = matrix(self.hidden, self.heads * size)
            weights[p + "post_attention_layernorm.weight"] = norm()
            weights[p + "mlp.gate_proj.weight"] = matrix(self.intermediate, self.hidden)
            weights[p + "mlp.up_proj.weight"] = matrix(self.intermediate, self.hidden)
            weights[p + "mlp.down_proj.weight"] = matrix(self.hidden, self.intermediate)
        weights["model.norm.weight"] = norm()
        if not self.tied:
            weights["lm_head.weight"] = matrix(self.vocab, self.hidden, self.gain)
        if self.twins is not None:
            # Every second token nearly equals the token before it, so choices are near ties.
            head = weights["lm_head.weight"]
            head[1::2] = head[: self.vocab - 1 : 2] * (1 + self.twins)
        return weights

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config()), encoding="utf-8")
        save_file(self.weights(), directory / "model.safetensors")
        return directory


def _rms(x: Doubles, weight: npt.NDArray[Any]) -> Doubles:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight)


def _frequencies(tiny: Tiny, size: int) -> list[float]:
    result = []
    for index in range(size // 2):
        frequency = 10000.0 ** (-2 * index / size)
        if tiny.rope_scaling is not None:
            wavelength = 2 * math.pi / frequency
            if wavelength > 64 / 1.0:
                frequency /= 8.0
            elif wavelength > 64 / 4.0:
                smooth = (64 / wavelength - 1.0) / (4.0 - 1.0)
                frequency = (1 - smooth) * frequency / 8.0 + smooth * frequency
        result.append(frequency)
    return result


def _rope(x: Doubles, frequencies: list[float]) -> Doubles:
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[0])[:, None, None] * np.array(frequencies)
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def logits(tiny: Tiny, tokens: Sequence[int]) -> Doubles:
    """Return [tokens, vocabulary] logits."""
    w = {name: array.astype(np.float64) for name, array in tiny.weights().items()}
    count, size = len(tokens), tiny.hidden // tiny.heads
    group = tiny.heads // tiny.kv_heads
    frequencies = _frequencies(tiny, size)
    x: Doubles = w["model.embed_tokens.weight"][list(tokens)]
    for index in range(tiny.layers):
        p = f"model.layers.{index}."
        y = _rms(x, w[p + "input_layernorm.weight"])
        q = _rope((y @ w[p + "self_attn.q_proj.weight"].T).reshape(count, -1, size), frequencies)
        k = _rope((y @ w[p + "self_attn.k_proj.weight"].T).reshape(count, -1, size), frequencies)
        v = (y @ w[p + "self_attn.v_proj.weight"].T).reshape(count, -1, size)
        mixed = np.zeros((count, tiny.heads, size))
        for head in range(tiny.heads):
            for row in range(count):
                scores = k[: row + 1, head // group] @ q[row, head] / math.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[row, head] = weights / weights.sum() @ v[: row + 1, head // group]
        x = x + mixed.reshape(count, -1) @ w[p + "self_attn.o_proj.weight"].T
        y = _rms(x, w[p + "post_attention_layernorm.weight"])
        gate = y @ w[p + "mlp.gate_proj.weight"].T
        up = y @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    head_weights = w["model.embed_tokens.weight"] if tiny.tied else w["lm_head.weight"]
    return np.asarray(_rms(x, w["model.norm.weight"]) @ head_weights.T)
