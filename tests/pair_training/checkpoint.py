"""Files: Hugging Face checkpoint directories, and the state from which a training resumes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save
from tokenizers import Tokenizer

from pair_training.data import END, end_id
from pair_training.heads_layout import HEADS, heads_config
from pair_training.model import Params, Shape


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path`, readable by everyone, under a temporary name, and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.chmod(0o644)
    os.replace(partial, path)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON; see `write_bytes`."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def config(shape: Shape, end: int) -> dict[str, Any]:
    """The `config.json` of a Hugging Face Llama checkpoint of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": end,
        "eos_token_id": end,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": shape.context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": shape.eps,
        "rope_scaling": None,
        "rope_theta": shape.theta,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    }


def write_checkpoint(folder: Path, params: Params, shape: Shape, tokenizer: Tokenizer) -> None:
    """Write a complete checkpoint directory: float16 weights, configuration and tokenizer."""
    end = end_id(tokenizer)
    halves = {name: np.asarray(value, np.float16) for name, value in params.items()}
    write_bytes(folder / "model.safetensors", save(halves, metadata={"format": "pt"}))
    write_json(folder / "config.json", config(shape, end))
    ids = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    write_json(folder / "generation_config.json", {**ids, "do_sample": False})
    special = {"bos_token": END, "eos_token": END, "pad_token": END}
    write_json(folder / "special_tokens_map.json", special)
    write_json(
        folder / "tokenizer_config.json",
        {
            **special,
            "add_bos_token": False,
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": shape.context,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    write_bytes(folder / "tokenizer.json", tokenizer.to_str().encode())


def write_heads(folder: Path, params: Params, target: Path) -> None:
    """Write EAGLE-3 heads of the checkpoint in `target`: float16 weights and configuration."""
    halves = {name: np.asarray(value, np.float16) for name, value in params.items()}
    write_bytes(folder / "model.safetensors", save(halves, metadata={"format": "pt"}))
    write_json(folder / "config.json", heads_config(read_json(target / "config.json"), HEADS))


def read_checkpoint(folder: Path) -> Params:
    """The weights of a checkpoint directory, widened to float32."""
    stored = load_file(folder / "model.safetensors")
    return {name: jnp.asarray(value, jnp.float32) for name, value in stored.items()}


def draft_state(out: Path, work: Path) -> Path:
    """Where the training of the draft for the target in `out` is kept."""
    return work / f"draft-{sha256(out / 'target' / 'model.safetensors')[:12]}.npz"


def heads_state(out: Path, work: Path) -> Path:
    """Where the training of the heads of the target in `out` is kept."""
    return work / f"eagle3-{sha256(out / 'target' / 'model.safetensors')[:12]}.npz"


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Store named arrays as one `.npz`, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial.npz")
    np.savez(partial, **arrays)
    os.replace(partial, path)


def save_state(path: Path, state: Any, step: int) -> None:
    """Store every leaf of the training state, and how many steps are done."""
    leaves = {f"leaf{index}": np.asarray(x) for index, x in enumerate(jax.tree.leaves(state))}
    save_arrays(path, {**leaves, "step": np.asarray(step)})


def load_state(path: Path, like: Any) -> tuple[Any, int]:
    """The stored state in the structure of `like`, and its step; `(like, 0)` where none is stored.

    Raises:
        ValueError: the file belongs to a model of other shapes.
    """
    if not path.exists():
        return like, 0
    leaves, structure = jax.tree.flatten(like)
    with np.load(path) as stored:
        values = [stored[f"leaf{index}"] for index in range(len(stored.files) - 1)]
        step = int(stored["step"])
    if [np.shape(x) for x in leaves] != [x.shape for x in values]:
        raise ValueError(f"{path} holds another model's training state: remove it to start anew")
    return jax.tree.unflatten(structure, [jnp.asarray(x) for x in values]), step
