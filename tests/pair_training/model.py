"""The Llama architecture in JAX: shapes, initial values, full forward and cached decoding.

Parameters are one flat dictionary under the tensor names of a Hugging Face Llama checkpoint, each
projection stored `[out, in]` as there, so a checkpoint is the training state without conversion.
Rotary embedding pairs dimension `i` with `i + head_dim / 2`, the layout that format implies.
Sources: Touvron et al. 2023 (Llama); Su et al. 2021 (rotary embedding); Zhang and Sennrich 2019
(RMSNorm); Shazeer 2020 (SwiGLU); Ainslie et al. 2023 (grouped query attention).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, jax.Array]
Cache = dict[str, jax.Array]

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"


@dataclass(frozen=True)
class Shape:
    """Sizes of one Llama model; `context` is the longest sequence it is trained on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int = 1024
    context: int = 256
    theta: float = 1e4
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint with its shape; the embedding is the output head too."""
        kv = self.kv_heads * self.head_dim
        layer = {
            "input_layernorm": (self.hidden,),
            "post_attention_layernorm": (self.hidden,),
            "self_attn.q_proj": (self.hidden, self.hidden),
            "self_attn.k_proj": (kv, self.hidden),
            "self_attn.v_proj": (kv, self.hidden),
            "self_attn.o_proj": (self.hidden, self.hidden),
            "mlp.gate_proj": (self.ffn, self.hidden),
            "mlp.up_proj": (self.ffn, self.hidden),
            "mlp.down_proj": (self.hidden, self.ffn),
        }
        named: dict[str, tuple[int, ...]] = {EMBEDDING: (self.vocabulary, self.hidden)}
        for index in range(self.layers):
            named |= {f"model.layers.{index}.{name}.weight": size for name, size in layer.items()}
        return named | {FINAL_NORM: (self.hidden,)}


TARGET = Shape(hidden=256, layers=4, heads=4, kv_heads=2, ffn=608)
DRAFT = Shape(hidden=128, layers=1, heads=2, kv_heads=1, ffn=384)


def initialise(shape: Shape, seed: int) -> Params:
    """Draw initial weights: norms are 1, all others are normal with mean 0.

    The standard deviation of the embedding is 0.02, that of projections 1 / sqrt(fan_in).

    Projections that write into the residual stream are shrunk by `sqrt(2 layers)` so that its
    variance does not grow with depth.
    """
    random = np.random.default_rng(seed)
    params: dict[str, Any] = {}
    for name, size in shape.tensors().items():
        if len(size) == 1:
            params[name] = np.ones(size)
            continue
        scale = 0.02 if name == EMBEDDING else size[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= (2 * shape.layers) ** 0.5
        params[name] = random.normal(0.0, scale, size)
    return {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}


def norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """Root-mean-square normalisation over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x: jax.Array, positions: jax.Array, theta: float) -> jax.Array:
    """Apply the rotary embedding to `x` `[..., time, heads, head_dim]` at `positions` `[time]`."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def project(x: jax.Array, params: Params, name: str) -> jax.Array:
    """Apply the projection `name` `[out, in]` to `x` `[..., in]`."""
    return jnp.einsum("...i,oi->...o", x, params[f"{name}.weight"])


def _heads(x: jax.Array, params: Params, prefix: str, shape: Shape) -> tuple[jax.Array, ...]:
    """Query, key and value `[batch, time, heads, head_dim]` before rotation."""
    sizes = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    return tuple(
        project(x, params, f"{prefix}.self_attn.{part}_proj").reshape(
            *x.shape[:2], count, shape.head_dim
        )
        for part, count in sizes.items()
    )


def _attend(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, shape: Shape
) -> jax.Array:
    """Grouped-query attention.

    `query` is `[batch, q, heads, d]`, `key` and `value` `[batch, k, kv_heads, d]`,
    `visible` a boolean mask `[q, k]`; returns `[batch, q, hidden]`.
    """
    batch, length = query.shape[:2]
    group = shape.heads // shape.kv_heads
    # Put heads before time, and repeat the heads of key and value. The CPU compiler uses its
    # matrix kernel for plain batched products. A five-index contraction runs several times slower.
    query = (query * shape.head_dim**-0.5).transpose(0, 2, 1, 3)
    key = jnp.repeat(key, group, axis=2).transpose(0, 2, 3, 1)
    value = jnp.repeat(value, group, axis=2).transpose(0, 2, 1, 3)
    weights = jax.nn.softmax(jnp.where(visible, query @ key, -1e9), axis=-1)
    return (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, shape.hidden)


def feed_forward(x: jax.Array, params: Params, prefix: str) -> jax.Array:
    """The gated feed-forward network of the layer `prefix`; returns the shape of `x`."""
    gate = jax.nn.silu(project(x, params, f"{prefix}.mlp.gate_proj"))
    up = project(x, params, f"{prefix}.mlp.up_proj")
    return project(gate * up, params, f"{prefix}.mlp.down_proj")


def states(params: Params, tokens: jax.Array, shape: Shape) -> list[jax.Array]:
    """The embedding of `tokens` `[batch, time]` and each layer's output, `[batch, time, hidden]`.

    They are the residual stream, before the norm of what follows.
    """
    length = tokens.shape[1]
    positions = jnp.arange(length)
    visible = positions[:, None] >= positions[None, :]
    x = params[EMBEDDING][tokens]
    stream = [x]
    for index in range(shape.layers):
        prefix = f"model.layers.{index}"
        normed = norm(x, params[f"{prefix}.input_layernorm.weight"], shape.eps)
        query, key, value = _heads(normed, params, prefix, shape)
        query = rotate(query, positions, shape.theta)
        key = rotate(key, positions, shape.theta)
        mixed = _attend(query, key, value, visible, shape)
        x = x + project(mixed, params, f"{prefix}.self_attn.o_proj")
        normed = norm(x, params[f"{prefix}.post_attention_layernorm.weight"], shape.eps)
        x = x + feed_forward(normed, params, prefix)
        stream.append(x)
    return stream


def forward(params: Params, tokens: jax.Array, shape: Shape) -> jax.Array:
    """Logits `[batch, time, vocabulary]` of every position of `tokens` `[batch, time]`."""
    return predict(params, states(params, tokens, shape)[-1], shape)


def predict(params: Params, x: jax.Array, shape: Shape) -> jax.Array:
    """Logits `[..., vocabulary]` of the last layer's output `x` `[..., hidden]`."""
    return norm(x, params[FINAL_NORM], shape.eps) @ params[EMBEDDING].T


def empty_cache(shape: Shape, batch: int) -> Cache:
    """Buffers for each layer: keys and values `[kv_heads, batch, context, head_dim]`."""
    size = (shape.kv_heads, batch, shape.context, shape.head_dim)
    return {
        f"{index}.{part}": jnp.zeros(size, jnp.float32)
        for index in range(shape.layers)
        for part in ("k", "v")
    }


def _attend_cached(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, shape: Shape
) -> jax.Array:
    """One query per sequence, `[batch, 1, heads, d]`, against the cache: `[batch, 1, hidden]`.

    `visible` is a boolean mask `[context]`. The buffers are read in the order they lie in memory.
    """
    batch, group = query.shape[0], shape.heads // shape.kv_heads
    query = (query * shape.head_dim**-0.5).reshape(batch, shape.kv_heads, group, shape.head_dim)
    grouped = query.transpose(1, 0, 2, 3)
    scores = jnp.einsum("hbgd,hbtd->hbgt", grouped, key)
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e9), axis=-1)
    mixed = jnp.einsum("hbgt,hbtd->hbgd", weights, value)
    return mixed.transpose(1, 0, 2, 3).reshape(batch, 1, shape.hidden)


def step(
    params: Params, cache: Cache, tokens: jax.Array, position: jax.Array, shape: Shape
) -> tuple[jax.Array, Cache]:
    """Decode one token per sequence: `tokens` `[batch]`, all at `position`.

    Returns logits `[batch, vocabulary]` and the cache with this position's keys and values added.
    """
    positions = position[None]
    visible = jnp.arange(shape.context) <= position
    x = params[EMBEDDING][tokens][:, None, :]
    grown = dict(cache)
    for index in range(shape.layers):
        prefix = f"model.layers.{index}"
        normed = norm(x, params[f"{prefix}.input_layernorm.weight"], shape.eps)
        query, key, value = _heads(normed, params, prefix, shape)
        fresh = {"k": rotate(key, positions, shape.theta), "v": value}
        for part, values in fresh.items():
            grown[f"{index}.{part}"] = jax.lax.dynamic_update_slice_in_dim(
                grown[f"{index}.{part}"], values.transpose(2, 0, 1, 3), position, axis=2
            )
        query = rotate(query, positions, shape.theta)
        mixed = _attend_cached(query, grown[f"{index}.k"], grown[f"{index}.v"], visible, shape)
        x = x + project(mixed, params, f"{prefix}.self_attn.o_proj")
        normed = norm(x, params[f"{prefix}.post_attention_layernorm.weight"], shape.eps)
        x = x + feed_forward(normed, params, prefix)
    return predict(params, x, shape)[:, 0], grown
