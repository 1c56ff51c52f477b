"""Facts about experts, attention and quantization that a checkpoint's `config.json` states.

The fetch Job (`inspection`) and `specdec plan --checkpoint ROLE=config.json` both read them here,
so that a plan on a workstation knows what the operator will know.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs.checkpoint_config import (
    INTEGER_LIMIT,
    Config,
    number,
    optional_number,
    section,
    short_text,
)

# A larger number of positions is no length of a context; scaled, it would exceed 64 bits.
_POSITIONS_LIMIT = 2**48
# Names of one number in the configurations of different model families, the usual name first.
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")
_EXPERTS_PER_TOKEN_OLDER = ("num_selected_experts", "moe_topk", "moe_top_k", "moe_k")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts")


def facts(config: Config) -> CheckpointFacts:
    """The facts about experts, multi-token prediction and multi-head latent attention.

    With that attention, `head_dim` is the width of a query; it is None for any other.
    """
    return CheckpointFacts(
        next_token_layers=optional_number(config, "num_nextn_predict_layers"),
        experts_per_token=_first(config, (*_EXPERTS_PER_TOKEN, *_EXPERTS_PER_TOKEN_OLDER)),
        shared_experts=_first(config, _SHARED_EXPERTS),
        expert_size=_first(config, ("moe_intermediate_size",)),
        expert_parameters=_expert_parameters(config),
        cache_width=_sum(config, "kv_lora_rank", "qk_rope_head_dim"),
        head_dim=_query_width(config) or None,
    )


def positions(config: Config) -> int:
    """The context length in tokens, after rotary scaling.

    Raises:
        JobError: CheckpointCorrupt: it is not stated, or no positive number.
    """
    length, scaling = number(config, "max_position_embeddings"), section(config, "rope_scaling")
    kind = scaling.get("rope_type") or scaling.get("type")
    factor = scaling.get("factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1024:
        return length
    original = optional_number(scaling, "original_max_position_embeddings")
    if max(length, original or 0) >= _POSITIONS_LIMIT:
        return length
    if original is not None:
        return max(length, int(original * factor))
    # With these two types, max_position_embeddings states the length before scaling.
    return int(length * factor) if kind in ("linear", "dynamic") else length


def quantization(config: Config, modelopt: Config) -> str | None:
    """The quantization of the weights, under the name that the quantization tool wrote.

    Args:
        config: of `config.json`.
        modelopt: the section `quantization` of `hf_quant_config.json`; empty without the file.
    """
    own = section(config, "quantization_config")
    return short_text(modelopt.get("quant_algo")) or short_text(
        own.get("quant_algo") or own.get("quant_method")
    )


def parameters(config: Config) -> int | None:
    """The number of parameters of a mixture of experts, from the widths of its layers.

    None for a dense model, and where a width is not stated. Norms, biases and routers are left
    out: they are far below one percent.
    """
    sizes = {
        name: optional_number(config, key) or 0
        for name, key in (
            ("vocab", "vocab_size"),
            ("hidden", "hidden_size"),
            ("layers", "num_hidden_layers"),
            ("intermediate", "intermediate_size"),
        )
    }
    experts = _first(config, _EXPERTS)
    width = _first(config, ("moe_intermediate_size",)) or sizes["intermediate"]
    attention = _attention(config, sizes["hidden"])
    if not experts or not width or not attention or not all(sizes.values()):
        return None
    dense, mixed = _layers(config)
    shared = _first(config, _SHARED_EXPERTS) or 0
    feed_forward = dense * sizes["intermediate"] + mixed * (experts + shared) * width
    tied = config.get("tie_word_embeddings") is True
    ends = sizes["vocab"] * sizes["hidden"] * (1 if tied else 2)
    total = (dense + mixed) * attention + 3 * sizes["hidden"] * feed_forward + ends
    return total if total < INTEGER_LIMIT else None


def _layers(config: Config) -> tuple[int, int]:
    """The numbers of dense layers and of layers with experts."""
    layers = optional_number(config, "num_hidden_layers") or 0
    dense = min(optional_number(config, "first_k_dense_replace") or 0, layers)
    # A layer that predicts a further token is a whole layer with experts.
    return dense, layers - dense + (optional_number(config, "num_nextn_predict_layers") or 0)


def _expert_parameters(config: Config) -> int | None:
    """Parameters of all routed experts; None for a dense model, or if a width is not stated."""
    experts = _first(config, _EXPERTS) or 0
    width = _first(config, ("moe_intermediate_size", "intermediate_size")) or 0
    hidden = optional_number(config, "hidden_size") or 0
    _, mixed = _layers(config)
    total = 3 * hidden * mixed * experts * width
    return total if 0 < total < INTEGER_LIMIT else None


def _attention(config: Config, hidden: int) -> int:
    """Parameters of one layer's attention; 0 where a size is not stated."""
    heads = optional_number(config, "num_attention_heads") or 0
    query = _query_width(config)
    if query:
        rank, rope = (
            optional_number(config, k) or 0 for k in ("kv_lora_rank", "qk_rope_head_dim")
        )
        value = optional_number(config, "v_head_dim") or 0
        down = optional_number(config, "q_lora_rank")
        queries = down * (hidden + heads * query) if down else hidden * heads * query
        keys = hidden * (rank + rope) + rank * heads * (query - rope + value)
        return queries + keys + heads * value * hidden
    kv_heads = optional_number(config, "num_key_value_heads") or heads
    width = optional_number(config, "head_dim") or (hidden // heads if heads else 0)
    return 2 * hidden * width * (heads + kv_heads)


def _query_width(config: Config) -> int | None:
    """The width of a query of multi-head latent attention; None for any other attention."""
    if not optional_number(config, "kv_lora_rank"):
        return None
    return _sum(config, "qk_nope_head_dim", "qk_rope_head_dim")


def _sum(config: Config, *keys: str) -> int | None:
    """The sum of several numbers; None unless all are stated."""
    values = [optional_number(config, key) for key in keys]
    known = [value for value in values if value]
    total = sum(known)
    return total if len(known) == len(values) and total < INTEGER_LIMIT else None


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """The first of several names that has a number."""
    return next((value for key in keys if (value := optional_number(config, key))), None)
