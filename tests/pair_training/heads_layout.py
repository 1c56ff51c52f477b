"""The sizes, tensors and configuration of EAGLE-3 heads, as vLLM and SpecForge lay them out.

The heads are one decoder layer that reads three hidden states of the target and the embedding of
the next token. They have neither an embedding nor an output head: both are the target's.
Source: Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
Training-Time Test" (arXiv 2503.01840).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Layers of the target whose outputs the heads read; layer 0 is the embedding. Servers have a
# default for them, which names a layer of this small target twice.
STATES = (1, 2, 3)
LAYER = "midlayer"
INPUT = "fc.weight"
NORM = "norm.weight"


@dataclass(frozen=True)
class HeadsShape:
    """Sizes of EAGLE-3 heads; `hidden` and `head_dim` are the target's."""

    hidden: int
    head_dim: int
    heads: int
    kv_heads: int
    ffn: int
    theta: float = 1e4
    eps: float = 1e-5

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint with its shape, projections as `[out, in]`."""
        hidden, query, key = (
            self.hidden,
            self.heads * self.head_dim,
            self.kv_heads * self.head_dim,
        )
        layer = {
            "input_layernorm": (hidden,),
            "hidden_norm": (hidden,),
            "post_attention_layernorm": (hidden,),
            # The attention reads the embedding and the hidden state side by side.
            "self_attn.q_proj": (query, 2 * hidden),
            "self_attn.k_proj": (key, 2 * hidden),
            "self_attn.v_proj": (key, 2 * hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (self.ffn, hidden),
            "mlp.up_proj": (self.ffn, hidden),
            "mlp.down_proj": (hidden, self.ffn),
        }
        named: dict[str, tuple[int, ...]] = {INPUT: (hidden, len(STATES) * hidden)}
        named |= {f"{LAYER}.{name}.weight": size for name, size in layer.items()}
        return named | {NORM: (hidden,)}


HEADS = HeadsShape(hidden=256, head_dim=64, heads=2, kv_heads=1, ffn=128)


def heads_config(target: Mapping[str, Any], shape: HeadsShape) -> dict[str, Any]:
    """Return the `config.json` of heads of the target that `target` configures."""
    return {
        **target,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "draft_vocab_size": target["vocab_size"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(STATES)},
    }
