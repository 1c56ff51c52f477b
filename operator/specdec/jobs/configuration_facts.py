"""The one reader of a checkpoint's `config.json`.

The fetch Job (`inspection`) and `specdec plan --checkpoint ROLE=config.json` both read it here,
so that a plan on a workstation knows what the operator will know. `model_keys.yaml` has the keys
of each family.
"""

from collections.abc import Iterator
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs import checkpoint_config, layer_facts
from specdec.jobs.checkpoint_config import (
    INTEGER_LIMIT,
    Config,
    optional_number,
    section,
    short_text,
)
from specdec.jobs.model_keys import count, first, keys, language_model, size

# A larger number of positions is no length of a context; scaled, it would exceed 64 bits.
_POSITIONS_LIMIT = 2**48
_NONE: Config = {}
# Parameters that share a scale.
_USUAL_GROUP, _MXFP4_GROUP = 128, 32


def checkpoint(config: Config, modelopt: Config = _NONE) -> CheckpointFacts:
    """The facts that config.json states; a size that it does not state is None.

    Args:
        config: of `config.json`.
        modelopt: the section `quantization` of `hf_quant_config.json`; empty without the file.

    Raises:
        JobError: CheckpointCorrupt: a size is anything but a positive number.
    """
    own = language_model(config)
    heads, hidden = size(own, "heads"), size(own, "hidden_size")
    width = size(own, "head_dim") or (max(1, hidden // heads) if heads and hidden else None)
    longest, dtype = positions(own), own.get("dtype") or own.get("torch_dtype")
    layers = size(own, "layers")
    facts = CheckpointFacts(
        architecture=checkpoint_config.architecture(own),
        vocab_size=size(own, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=first(own, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=first(own, "full_kv_heads") or _kv_heads(own, heads),
        head_dim=first(own, "full_head_dim") or width,
        rotary_dim=_rotary_width(own, width),
        max_position=longest,
        dtype=str(dtype).removeprefix("torch.")[:16] if dtype else None,
        tie_embeddings=own.get("tie_word_embeddings") is True,
        quantization=quantization(own, modelopt),
        quantizes_experts_only=_quantizes_experts_only(own, modelopt) or None,
    )
    facts = facts.updated(layer_facts.facts(own, layers, longest) if layers else NO_FACTS)
    return facts.updated(_experts_and_attention(own))


def _kv_heads(own: Config, heads: int | None) -> int | None:
    """Key/value heads of the usual layers: one with multi-query attention (Falcon, StarCoder)."""
    one = own.get("multi_query") is True and own.get("new_decoder_architecture") is not True
    return size(own, "kv_heads") or (1 if one else heads)


def _experts_and_attention(own: Config) -> CheckpointFacts:
    """The facts about experts, multi-token prediction and multi-head latent attention.

    With that attention, `head_dim` is the width of a query; it is None for any other.
    """
    experts = first(own, "experts")
    return CheckpointFacts(
        next_token_layers=first(own, "next_token_layers"),
        experts_per_token=first(own, "experts_per_token"),
        shared_experts=_shared_experts(own) or None,
        expert_size=first(own, "expert_size") if experts else None,
        expert_parameters=_expert_parameters(own),
        cache_width=_sum(own, "kv_lora_rank", "qk_rope_head_dim"),
        index_head_dim=first(own, "index_head_dim"),
        head_dim=_query_width(own),
    )


def positions(own: Config) -> int | None:
    """The context length in tokens, after rotary scaling; None if it is not stated.

    Raises:
        JobError: CheckpointCorrupt: it is no positive number.
    """
    length, scaling, table = size(own, "max_position"), _rotary(own), keys()["rotary"]
    kind = scaling.get("rope_type") or scaling.get("type")
    original = optional_number(scaling, "original_max_position_embeddings")
    factor = scaling.get("factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1024:
        return length or original
    if max(length or 0, original or 0) >= _POSITIONS_LIMIT:
        return length
    if original is not None:
        return max(length or 0, int(original * factor))
    scaled = kind not in table["unscaled"] or own.get("model_type") in table["scaled_models"]
    return length if scaled or length is None else int(length * factor)


def _rotary(own: Config) -> dict[str, Any]:
    """The scaling of rotary positions; with one for each kind of layer, that of full attention."""
    stated = section(own, "rope_parameters") or section(own, "rope_scaling")
    by_kind = {kind: value for kind, value in stated.items() if isinstance(value, dict)}
    if not by_kind or "rope_type" in stated or "type" in stated:
        return stated
    return by_kind.get("full_attention") or next(iter(by_kind.values()))


def _rotary_width(own: Config, width: int | None) -> int | None:
    """The elements of a head that are rotated; None where it is all of them."""
    share = _rotary(own).get("partial_rotary_factor") or own.get("partial_rotary_factor")
    if width is None or isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return int(width * share) if 0 < share < 1 else None


def quantization(own: Config, modelopt: Config) -> str | None:
    """The quantization of the weights, under the name that the quantization tool wrote.

    compressed-tensors and GPTQ name the tool alone: there it is the number format.
    """
    stated = section(own, "quantization_config") or section(own, "compression_config")
    method = short_text(stated.get("quant_method"))
    algorithm = (
        short_text(modelopt.get("quant_algo"))
        or short_text(stated.get("quant_algo"))
        or short_text(section(stated, "quantization").get("quant_algo"))
    )
    if algorithm or not (stated or method):
        return algorithm
    groups = section(stated, "config_groups").values()
    weights = next((section(g, "weights") for g in groups if isinstance(g, dict)), {})
    bits = optional_number(weights, "num_bits") or optional_number(stated, "bits")
    bits = bits or next((n for n in (4, 8) if stated.get(f"load_in_{n}bit") is True), None)
    if method == "quark":
        own_weight = section(section(stated, "global_quant_config"), "weight")
        return short_text(own_weight.get("dtype")) or method
    if not weights:
        return f"{method}-{bits}bit" if method and bits and bits != 4 else method
    group = optional_number(weights, "group_size")
    if weights.get("type") != "float":
        # Smaller groups have more scales.
        return f"int{bits}-g{group}" if group and group < _USUAL_GROUP else f"int{bits}"
    if bits == 4:
        return "mxfp4" if group == _MXFP4_GROUP else "nvfp4"
    return f"fp{bits}"


def _quantizes_experts_only(own: Config, modelopt: Config) -> bool:
    """Whether the modules that quantization leaves out are those of attention."""
    if not first(own, "experts"):
        return False
    stated = section(own, "quantization_config") or section(own, "compression_config")
    lists = [place.get(key) for place in (stated, modelopt) for key in keys()["excluded"]]
    return any("attn" in str(name) for names in lists if isinstance(names, list) for name in names)


def parameters(config: Config) -> int | None:
    """The number of parameters of a mixture of experts, from the widths of its layers.

    None for a dense model, and where a width is not stated. Norms, biases and routers are left
    out: they are far below one percent.
    """
    own = language_model(config)
    vocab, hidden, layers = (first(own, fact) for fact in ("vocab_size", "hidden_size", "layers"))
    experts, width, attention = _expert_parameters(own), first(own, "expert_size"), 0
    if vocab and hidden and layers and experts and width:
        attention = _attention(own, hidden)
    if not (vocab and hidden and layers and experts and width and attention):
        return None
    dense, mixed = _layers(own)
    feed_forward = dense * (first(own, "intermediate_size") or width)
    feed_forward += mixed * (_shared_experts(own) or 0) * width
    ends = vocab * hidden * (1 if own.get("tie_word_embeddings") is True else 2)
    total = _mixers(own, layers, attention) + 3 * hidden * feed_forward + experts + ends
    return total if total < INTEGER_LIMIT else None


def _mixers(own: Config, layers: int, attention: int) -> int:
    """Parameters of everything that mixes tokens: attention, linear attention, state spaces."""
    kinds = layer_facts.facts(own, layers, None)
    whole = layers
    if kinds.full_layers is not None:
        whole = kinds.full_layers + (kinds.window_layers or 0)
    states = (kinds.state_layers or 0) * (layer_facts.mixer_parameters(own) or attention)
    return states + (whole + (first(own, "next_token_layers") or 0)) * attention


def _shared_experts(own: Config) -> int:
    """Experts of the usual width that every token passes."""
    width, usual = first(own, "shared_width"), first(own, "expert_size")
    return -(-width // usual) if width and usual else first(own, "shared_experts") or 0


def _layers(own: Config) -> tuple[int, int]:
    """The numbers of dense layers and of layers with experts."""
    layers = first(own, "layers") or 0
    dense = max([min(first(own, "dense_layers") or 0, layers), *_listed_dense(own, layers)])
    mixed = (layers - dense) // (first(own, "expert_interval") or 1)
    # A layer that predicts a further token is a whole layer with experts.
    return layers - mixed, mixed + (first(own, "next_token_layers") or 0)


def _listed_dense(own: Config, layers: int) -> Iterator[int]:
    """The number of dense layers in each list that has one entry for each layer."""
    for key, entry in (("moe_layer_freq", 0), ("mlp_layer_types", "dense")):
        stated = own.get(key)
        if isinstance(stated, list):
            yield min(stated.count(entry), layers)
    pattern = own.get("hybrid_override_pattern")
    if isinstance(pattern, str) and "E" in pattern:
        yield max(layers - pattern.count("E"), 0)
    listed = own.get("mlp_only_layers")
    yield min(len(listed), layers) if isinstance(listed, list) else 0


def _expert_parameters(own: Config) -> int | None:
    """Parameters of all routed experts; None for a dense model, or if a width is not stated."""
    sizes = [first(own, fact) or 0 for fact in ("experts", "expert_size", "hidden_size")]
    _, mixed = _layers(own)
    kind = own.get("model_type")
    matrices = keys()["matrices"].get(kind, 3) if isinstance(kind, str) else 3
    total = matrices * mixed * sizes[0] * sizes[1] * sizes[2]
    return total if 0 < total < INTEGER_LIMIT else None


def _attention(own: Config, hidden: int) -> int:
    """Parameters of one layer's attention; 0 where a size is not stated."""
    heads = first(own, "heads") or 0
    query = _query_width(own)
    if query:
        rank, rope, value, down = (
            count(own.get(key)) or 0
            for key in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
        )
        queries = down * (hidden + heads * query) if down else hidden * heads * query
        latent = hidden * (rank + rope) + rank * heads * (query - rope + value)
        return queries + latent + heads * value * hidden
    kv_heads = first(own, "kv_heads") or heads
    width = first(own, "head_dim") or (hidden // heads if heads else 0)
    return 2 * hidden * width * (heads + kv_heads)


def _query_width(own: Config) -> int | None:
    """The width of a query of multi-head latent attention; None for any other attention."""
    if not optional_number(own, "kv_lora_rank"):
        return None
    return _sum(own, "qk_nope_head_dim", "qk_rope_head_dim")


def _sum(own: Config, *names: str) -> int | None:
    """The sum of several numbers; None unless all are stated."""
    values = [optional_number(own, name) for name in names]
    known = [value for value in values if value]
    total = sum(known)
    return total if len(known) == len(values) and total < INTEGER_LIMIT else None
