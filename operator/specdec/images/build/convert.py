"""Turn a Hugging Face Llama checkpoint into the arrays of a Reference engine.

What is folded in, so that a decoding step does less:

- norm weights into the projection after them, the attention scale into the query projection;
- rotary pairs (i, i + half) of query and key become neighbours: scores do not change, and one
  complex product rotates them;
- the signs of the gate and up projections are flipped: (-g)(-u) / (1 + exp(-g)) is SiLU(g) u;
- each projection is stored [blocks, inputs, 64], the shape small products are fastest in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from checkpoint import Checkpoint, Floats
from failure import BuildError
from rotary import of_checkpoint

WIDTH = 64


@dataclass(frozen=True)
class Shape:
    """A Llama's sizes, out of its Hugging Face config."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    tied: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape:
        """Check that this is a Llama we can run, and take its sizes.

        Raises:
            BuildError: another architecture, or a feature that this backend lacks.
        """
        _refuse_unsupported(config)
        try:
            hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
            shape = cls(
                vocab=int(config["vocab_size"]),
                hidden=hidden,
                intermediate=int(config["intermediate_size"]),
                layers=int(config["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(config.get("num_key_value_heads") or heads),
                head=int(config.get("head_dim") or hidden // heads),
                tied=bool(config.get("tie_word_embeddings", False)),
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise BuildError(
                "CheckpointCorrupt", f"config.json lacks a Llama's sizes ({error}); fetch it again"
            ) from error
        if shape.heads % shape.kv_heads or shape.head % 2:
            raise BuildError(
                "UnsupportedArchitecture",
                f"{shape.heads} heads with {shape.kv_heads} key-value heads of {shape.head} "
                "cannot be grouped; the heads must be a multiple of the key-value heads",
            )
        return shape


def rotary(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any] | None]:
    """Return the rotary base and the scaling, in any spelling transformers has used."""
    own = of_checkpoint(config)
    if own.kind not in ("default", "llama3"):
        raise BuildError(
            "UnsupportedArchitecture",
            f"rope_scaling {own.kind!r} is not in the Reference backend; it has default and "
            "llama3",
        )
    return own.base, own.scaling


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    names = config.get("architectures") or ["none"]
    if "LlamaForCausalLM" not in names:
        raise BuildError(
            "UnsupportedArchitecture",
            f"architecture {names[0]} is not in the Reference backend; "
            "use a LlamaForCausalLM checkpoint, or another runtime.backend",
        )
    required = (("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu"))
    for key, value in required:
        if config.get(key, value) != value:
            raise BuildError(
                "UnsupportedArchitecture",
                f"{key}: {config[key]!r} is not in the Reference backend; it needs {value!r}",
            )
    if config.get("quantization_config"):
        raise BuildError(
            "UnsupportedCheckpoint",
            "this checkpoint is quantized; the Reference backend needs plain float weights",
        )
    rotary(config)


def blocked(matrix: Floats) -> Floats:
    """Store [outputs, inputs] as [blocks, inputs, 64], padding the outputs with zeros."""
    outputs, inputs = matrix.shape
    blocks = -(-outputs // WIDTH)
    padded = np.zeros((blocks * WIDTH, inputs), np.float32)
    padded[:outputs] = matrix
    return np.ascontiguousarray(padded.reshape(blocks, WIDTH, inputs).transpose(0, 2, 1))


def _adjacent(matrix: Floats, head: int) -> Floats:
    """Reorder each head's outputs from (first halves, second halves) to adjacent pairs."""
    outputs, inputs = matrix.shape
    pairs = matrix.reshape(outputs // head, 2, head // 2, inputs)
    return pairs.transpose(0, 2, 1, 3).reshape(outputs, inputs)


def arrays(checkpoint: Checkpoint, shape: Shape) -> Iterator[tuple[str, Floats]]:
    """Yield the engine's arrays one by one, so that a build needs memory for one layer."""
    embedding = checkpoint.read("model.embed_tokens.weight", shape.vocab, shape.hidden)
    yield "embedding", embedding
    for index in range(shape.layers):
        yield from _layer(checkpoint, shape, index)
    norm = checkpoint.read("model.norm.weight", shape.hidden)
    # Checkpoints saved with tied embeddings may or may not repeat them under the head's name.
    if shape.tied or "lm_head.weight" not in checkpoint:
        head = embedding
    else:
        head = checkpoint.read("lm_head.weight", shape.vocab, shape.hidden)
    yield "head", blocked(head * norm)


def _layer(checkpoint: Checkpoint, shape: Shape, index: int) -> Iterator[tuple[str, Floats]]:
    prefix, name = f"model.layers.{index}.", f"layers.{index}."
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    attention = prefix + "self_attn."
    query = checkpoint.read(attention + "q_proj.weight", queries, shape.hidden)
    key = checkpoint.read(attention + "k_proj.weight", keys, shape.hidden)
    value = checkpoint.read(attention + "v_proj.weight", keys, shape.hidden)
    norm = checkpoint.read(prefix + "input_layernorm.weight", shape.hidden)
    scaled = _adjacent(query, shape.head) * np.float32(1 / math.sqrt(shape.head))
    stacked = np.concatenate([scaled, _adjacent(key, shape.head), value])
    yield name + "attention_in", blocked(stacked * norm)
    output = checkpoint.read(attention + "o_proj.weight", shape.hidden, queries)
    yield name + "attention_out", blocked(output)
    gate = checkpoint.read(prefix + "mlp.gate_proj.weight", shape.intermediate, shape.hidden)
    up = checkpoint.read(prefix + "mlp.up_proj.weight", shape.intermediate, shape.hidden)
    norm = checkpoint.read(prefix + "post_attention_layernorm.weight", shape.hidden)
    yield name + "mlp_in", blocked(-np.concatenate([gate, up]) * norm)
    down = checkpoint.read(prefix + "mlp.down_proj.weight", shape.hidden, shape.intermediate)
    yield name + "mlp_out", blocked(down)


def shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array that `arrays` yields, in its order."""

    def stored(outputs: int, inputs: int) -> tuple[int, ...]:
        return -(-outputs // WIDTH), inputs, WIDTH

    attention = shape.heads * shape.head
    table: dict[str, tuple[int, ...]] = {"embedding": (shape.vocab, shape.hidden)}
    for index in range(shape.layers):
        name = f"layers.{index}."
        fused = attention + 2 * shape.kv_heads * shape.head
        table[name + "attention_in"] = stored(fused, shape.hidden)
        table[name + "attention_out"] = stored(shape.hidden, attention)
        table[name + "mlp_in"] = stored(2 * shape.intermediate, shape.hidden)
        table[name + "mlp_out"] = stored(shape.hidden, shape.intermediate)
    return {**table, "head": stored(shape.vocab, shape.hidden)}
