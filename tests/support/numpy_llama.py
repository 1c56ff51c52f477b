"""The shipped pair in NumPy: a second implementation of its architecture, for tests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]
Weights = Mapping[str, Array]
WIDTH = 64


def weights(folder: Path) -> dict[str, Array]:
    """Return the weights of a checkpoint, widened to float32."""
    stored = load_file(folder / "model.safetensors")
    return {name: value.astype(np.float32) for name, value in stored.items()}


def normed(x: Array, weight: Array) -> Array:
    """Return the root-mean-square norm of the last axis, times `weight`."""
    scale = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(x / scale * weight, np.float32)


def rotated(x: Array, positions: NDArray[np.int64]) -> Array:
    """Apply rotary embeddings to `x` `[heads, time, width]`; (i, i + half) is a complex number."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, 10000.0 ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.asarray(np.concatenate([turned.real, turned.imag], -1), np.float32)


def attention(x: Array, w: Weights, prefix: str) -> Array:
    """Return causal grouped-query attention over `x` `[time, inputs]` as `[time, hidden]`."""
    time = x.shape[0]

    def heads(part: str) -> Array:
        projected = x @ w[f"{prefix}.self_attn.{part}_proj.weight"].T
        return projected.reshape(time, -1, WIDTH).transpose(1, 0, 2)

    positions = np.arange(time)
    query, key = rotated(heads("q"), positions), rotated(heads("k"), positions)
    repeat = len(query) // len(key)
    scores = query @ key.repeat(repeat, 0).transpose(0, 2, 1) / np.sqrt(WIDTH)
    scores[:, ~np.tri(time, dtype=bool)] = -np.inf
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    mixed = (chances @ heads("v").repeat(repeat, 0)).transpose(1, 0, 2).reshape(time, -1)
    return np.asarray(mixed @ w[f"{prefix}.self_attn.o_proj.weight"].T, np.float32)


def feed_forward(x: Array, w: Weights, prefix: str) -> Array:
    """Return the gated feed-forward network of the layer `prefix`."""
    gate = x @ w[f"{prefix}.mlp.gate_proj.weight"].T
    up = x @ w[f"{prefix}.mlp.up_proj.weight"].T
    inner = gate / (1 + np.exp(-gate)) * up
    return np.asarray(inner @ w[f"{prefix}.mlp.down_proj.weight"].T)


def states(w: Weights, ids: list[int], layers: int) -> list[Array]:
    """Return the embedding of `ids` and each layer's output, all `[time, hidden]`."""
    stream = [w["model.embed_tokens.weight"][ids]]
    for layer in range(layers):
        prefix, x = f"model.layers.{layer}", stream[-1]
        x = x + attention(normed(x, w[f"{prefix}.input_layernorm.weight"]), w, prefix)
        inner = normed(x, w[f"{prefix}.post_attention_layernorm.weight"])
        stream.append(x + feed_forward(inner, w, prefix))
    return stream


def predict(w: Weights, x: Array) -> Array:
    """Return the logits `[time, vocabulary]` of the last layer's output."""
    return np.asarray(normed(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T)


def forward(w: Weights, ids: list[int], layers: int) -> Array:
    """Return logits `[time, vocabulary]`."""
    return predict(w, states(w, ids, layers)[-1])


def eagle3_draft(
    heads: Weights, target: Weights, ids: list[int], read: list[Array], length: int
) -> list[int]:
    """Return `length` draft tokens after `ids`, as a server drafts with EAGLE-3 heads.

    Args:
        heads: the weights of the heads, which have no output head of their own.
        target: the weights of the target.
        ids: all tokens; the target has not read the last one.
        read: the target's states that the heads read, `[time, hidden]` each, of all other tokens.
        length: how many tokens.
    """
    given = np.concatenate(read, -1) @ heads["fc.weight"].T
    assert len(given) == len(ids) - 1
    drafted: list[int] = []
    for _ in range(length):
        # A row reads a state and the token after it; each draft adds a row.
        embedded = target["model.embed_tokens.weight"][(ids + drafted)[1:]]
        both = np.concatenate(
            [
                normed(embedded, heads["midlayer.input_layernorm.weight"]),
                normed(given, heads["midlayer.hidden_norm.weight"]),
            ],
            -1,
        )
        x = given + attention(both, heads, "midlayer")
        inner = normed(x, heads["midlayer.post_attention_layernorm.weight"])
        x = x + feed_forward(inner, heads, "midlayer")
        logits = normed(x[-1], heads["norm.weight"]) @ target["model.embed_tokens.weight"].T
        drafted.append(int(logits.argmax()))
        given = np.concatenate([given, x[-1:]])
    return drafted
