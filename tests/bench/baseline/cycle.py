"""A pair of Llama checkpoints with a known acceptance rate, and their engines.

Attention and feed-forward are zero, so the next token depends only on the last token. The target
repeats one long cycle of tokens. The draft predicts the same next token, except after a fixed
share of the tokens. A step computes few small products, so nearly all of its time is simulated.
"""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from support.shipped_pair import PAIR
from support.triton_server import PAYLOAD

_VOCABULARY = 1024
_HIDDEN = 64
_CONTEXT = 4096
_SEED = 7


@dataclass(frozen=True)
class Pair:
    """The directories of the engines and of the tokenizer."""

    target: Path
    draft: Path
    tokenizer: Path


def build(folder: Path, acceptance: float, max_batch: int, max_draft_tokens: int) -> Pair:
    """Write both checkpoints and build their engines with the product's build program.

    Args:
        acceptance: share, in [0, 1], of the tokens after which the draft predicts as the target.
    """
    numbers = random.Random(_SEED)
    # Token 0 ends answers, so the cycle omits it.
    cycle = list(range(1, _VOCABULARY))
    numbers.shuffle(cycle)
    target = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    draft = dict(target)
    for token in numbers.sample(cycle, round((1 - acceptance) * len(cycle))):
        draft[token] = target[target[token]]
    for role, steps in (("target", target), ("draft", draft)):
        _checkpoint(folder / role, steps)
        drafts = max_draft_tokens if role == "target" else 0
        limits = {"maxBatchSize": max_batch, "maxInputLen": _CONTEXT}
        plan = {
            "backend": "Reference",
            "role": role,
            "checkpoint": str(folder / role),
            "output": str(folder / "engines" / role),
            "key": role,
            "limits": {
                **limits,
                # The executor reserves the draft length at the end of a sequence.
                "maxSeqLen": _CONTEXT + drafts,
                "maxNumTokens": 8 * _CONTEXT,
            },
            "maxDraftTokens": drafts,
            "speculativeDecodingMode": "draft_tokens_external" if role == "target" else "none",
        }
        command = [sys.executable, str(PAYLOAD / "build" / "build_engine.py"), "--plan", "-"]
        subprocess.run(
            command, input=json.dumps(plan), text=True, check=True, stdout=subprocess.DEVNULL
        )
    return Pair(folder / "engines" / "target", folder / "engines" / "draft", folder / "target")


def _checkpoint(folder: Path, steps: dict[int, int]) -> None:
    folder.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(PAIR / "target" / file, folder / file)
    (folder / "config.json").write_text(json.dumps(_config()), "utf-8")
    save_file(_tensors(steps), str(folder / "model.safetensors"))


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "head_dim": _HIDDEN,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "intermediate_size": 16,
        "max_position_embeddings": _CONTEXT,
        "model_type": "llama",
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": _VOCABULARY,
    }


def _tensors(steps: dict[int, int]) -> dict[str, npt.NDArray[np.float32]]:
    places = np.random.default_rng(_SEED).standard_normal((_VOCABULARY, _HIDDEN))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    head = np.zeros_like(places)
    # A row of the head sums the embeddings of the tokens before its token: after these tokens,
    # its logit is highest.
    for token, following in steps.items():
        head[following] += places[token]
    layer = "model.layers.0"
    square = np.zeros((_HIDDEN, _HIDDEN))
    wide = np.zeros((16, _HIDDEN))
    tensors = {
        "model.embed_tokens.weight": places,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(_HIDDEN),
        f"{layer}.input_layernorm.weight": np.ones(_HIDDEN),
        f"{layer}.post_attention_layernorm.weight": np.ones(_HIDDEN),
        **{f"{layer}.self_attn.{name}_proj.weight": square for name in "qkvo"},
        f"{layer}.mlp.gate_proj.weight": wide,
        f"{layer}.mlp.up_proj.weight": wide,
        f"{layer}.mlp.down_proj.weight": wide.T,
    }
    return {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
