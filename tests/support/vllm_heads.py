"""Random heads and drafts for the shipped target, as checkpoints that vLLM loads.

Their drafts are seldom accepted: they show that a method runs and does not change the output.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from support.shipped_pair import PAIR

HEADS = 3
_SPREAD = 0.05
Weights = dict[str, npt.NDArray[Any]]


def target() -> dict[str, Any]:
    """Return the target's `config.json`."""
    config: dict[str, Any] = json.loads((PAIR / "target" / "config.json").read_text("utf-8"))
    return config


def eagle(folder: Path) -> Path:
    """Write EAGLE heads: a layer that reads the token and the hidden state."""
    config = target()
    hidden = config["hidden_size"]
    weights = {"fc.weight": _random(hidden, 2 * hidden), **_layer(config, "layers.0.", hidden)}
    # The first layer of EAGLE has no norm before its attention.
    del weights["layers.0.input_layernorm.weight"]
    return _write(folder, _heads(config, "EagleLlamaForCausalLM"), weights)


def eagle3(folder: Path) -> Path:
    """Write EAGLE-3 heads with a vocabulary of their own: every second token of the target's."""
    config = target()
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    drafts = vocabulary // 2
    drafted = np.zeros(vocabulary, np.bool_)
    drafted[::2] = True
    weights = {
        "fc.weight": _random(hidden, 3 * hidden),
        **_layer(config, "midlayer.", 2 * hidden),
        "midlayer.hidden_norm.weight": np.ones(hidden, np.float32),
        "norm.weight": np.ones(hidden, np.float32),
        "lm_head.weight": _random(drafts, hidden),
        # The token of a draft's index is the index plus this value.
        "d2t": np.arange(drafts, dtype=np.int64),
        "t2d": drafted,
    }
    own = _heads(config, "LlamaForCausalLMEagle3") | {
        "draft_vocab_size": drafts,
        # vLLM's default names a layer twice for a target with four layers.
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
    }
    return _write(folder, own, weights)


def medusa(folder: Path) -> Path:
    """Write Medusa heads, each with one layer and an output projection."""
    config = target()
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    weights: Weights = {}
    for head in range(HEADS):
        weights[f"{head}.0.linear.weight"] = _random(hidden, hidden)
        weights[f"{head}.0.linear.bias"] = np.zeros(hidden, np.float32)
        weights[f"{head}.1.weight"] = _random(vocabulary, hidden)
    own = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "medusa_num_heads": HEADS,
        "medusa_num_layers": 1,
        "medusa_fc_bias": True,
    }
    return _write(folder, own, weights)


def pard(folder: Path) -> Path:
    """Copy the shipped draft as a PARD draft, which fills the places of a draft with a token."""
    shutil.copytree(PAIR / "draft", folder, dirs_exist_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"pard_token": 1}
    path.write_text(json.dumps(config), "utf-8")
    return folder


def deepseek(folder: Path) -> Path:
    """Write the config of a tiny DeepSeek-V3 with one MTP layer, without weights.

    It uses the pair's tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copyfile(PAIR / "target" / name, folder / name)
    (folder / "config.json").write_text(json.dumps(deepseek_config()), "utf-8")
    return folder


def deepseek_config() -> dict[str, Any]:
    """Return the `config.json` of a tiny DeepSeek-V3 with one MTP layer."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "vocab_size": 1024,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }


def _heads(config: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    return {**config, "architectures": [architecture], "num_hidden_layers": 1}


def _layer(config: Mapping[str, Any], prefix: str, inputs: int) -> Weights:
    """Return the weights of a decoder layer whose attention reads `inputs` values."""
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    return {
        prefix + "input_layernorm.weight": np.ones(hidden, np.float32),
        prefix + "post_attention_layernorm.weight": np.ones(hidden, np.float32),
        prefix + "self_attn.q_proj.weight": _random(queries, inputs),
        prefix + "self_attn.k_proj.weight": _random(keys, inputs),
        prefix + "self_attn.v_proj.weight": _random(keys, inputs),
        prefix + "self_attn.o_proj.weight": _random(hidden, queries),
        prefix + "mlp.gate_proj.weight": _random(inner, hidden),
        prefix + "mlp.up_proj.weight": _random(inner, hidden),
        prefix + "mlp.down_proj.weight": _random(hidden, inner),
    }


def _random(rows: int, columns: int) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(rows * 31 + columns)
    return (random.standard_normal((rows, columns)) * _SPREAD).astype(np.float32)


def _write(folder: Path, config: Mapping[str, Any], weights: Weights) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(weights, folder / "model.safetensors")
    return folder
