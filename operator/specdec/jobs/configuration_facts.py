"""The one reader of a checkpoint's `config.json`.

The fetch Job (`inspection`) and `specdec plan --checkpoint ROLE=config.json` both read it here,
so that a plan on a workstation knows what the operator will know. `model_keys.yaml` has the keys
of each family.
"""

from collections import Counter
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs import checkpoint_config, layer_facts, parameter_count
from specdec.jobs.checkpoint_config import (
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
# Of ModelOpt: each layer has its own.
_MIXED = "MIXED_PRECISION"


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
    width = _width(own, heads, hidden)
    longest, dtype = positions(own), own.get("dtype") or own.get("torch_dtype")
    layers = size(own, "layers") or layer_facts.number(own)
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
        mask_token=first(own, "mask_token"),
        max_position=longest,
        dtype=str(dtype).removeprefix("torch.")[:16] if dtype else None,
        tie_embeddings=own.get("tie_word_embeddings") is True,
        quantization=quantization(own, modelopt),
        quantizes_experts_only=_quantizes_experts_only(own, modelopt) or None,
    )
    facts = facts.updated(layer_facts.facts(own, layers, longest) if layers else NO_FACTS)
    return facts.updated(_experts_and_attention(own))


def _width(own: Config, heads: int | None, hidden: int | None) -> int | None:
    """The width of a head; that of a query with multi-head latent attention.

    transformers 5 writes the rotary width of such an attention as head_dim, which may be 0.
    """
    if query := parameter_count.query_width(own):
        return query
    return size(own, "head_dim") or (max(1, hidden // heads) if heads and hidden else None)


def _kv_heads(own: Config, heads: int | None) -> int | None:
    """Key/value heads of the usual layers: one with multi-query attention (Falcon, StarCoder)."""
    one = own.get("multi_query") is True and own.get("new_decoder_architecture") is not True
    return size(own, "kv_heads") or (1 if one else heads)


def _experts_and_attention(own: Config) -> CheckpointFacts:
    """The facts about experts, multi-token prediction, latent and sparse attention."""
    experts, value = first(own, "experts"), first(own, "value_dim")
    latent = parameter_count.total_of(own, "kv_lora_rank", "qk_rope_head_dim")
    return CheckpointFacts(
        next_token_layers=first(own, "next_token_layers"),
        experts_per_token=first(own, "experts_per_token"),
        shared_experts=(parameter_count.shared_experts(own) if experts else 0) or None,
        expert_size=first(own, "expert_size") if experts else None,
        expert_parameters=parameter_count.expert_parameters(own),
        cache_width=latent,
        value_head_dim=None if latent or value == first(own, "head_dim") else value,
        index_bytes=layer_facts.index_bytes(own),
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

    compressed-tensors, GPTQ and MLX name the tool alone: there it is the number format. A mixture
    of formats is that of the experts, or else of most layers.
    """
    stated = _quantized(own)
    method = short_text(stated.get("quant_method"))
    places = (modelopt, stated, section(stated, "quantization"))
    algorithm = next((name for p in places if (name := short_text(p.get("quant_algo")))), None)
    if algorithm == _MIXED:
        return next((name for p in places if (name := _most(p))), algorithm)
    if algorithm or not (stated or method):
        return algorithm
    if method == "quark":
        own_weight = section(section(stated, "global_quant_config"), "weight")
        return short_text(own_weight.get("dtype")) or method
    weights = _weights(stated)
    if weights:
        return _format(weights)
    bits = count(stated.get("bits")) or count(section(stated, "quant_config").get("nbits"))
    bits = bits or next((n for n in (4, 8) if stated.get(f"load_in_{n}bit") is True), None)
    method = method or ("mlx" if bits else None)
    return f"{method}-{bits}bit" if method and bits and bits != 4 else method


def _quantized(own: Config) -> Config:
    """What config.json states about quantization."""
    places = (section(own, key) for key in keys()["quantization"])
    return next((place for place in places if place), _NONE)


def _most(place: Config) -> str | None:
    """The algorithm of the experts among quantized layers, or else the most frequent one."""
    layers = section(place, "quantized_layers").items()
    named = [(name, short_text(v.get("quant_algo"))) for name, v in layers if isinstance(v, dict)]
    experts = [algorithm for name, algorithm in named if algorithm and ".experts" in name]
    usual = Counter(experts or [algorithm for _, algorithm in named if algorithm])
    return usual.most_common(1)[0][0] if usual else None


def _weights(stated: Config) -> Config:
    """The weights of compressed-tensors; of several groups, those with the fewest bits."""
    groups = section(stated, "config_groups").values()
    stated_weights = [section(group, "weights") for group in groups if isinstance(group, dict)]
    known = [weights for weights in stated_weights if optional_number(weights, "num_bits")]
    return min(known, key=lambda weights: weights["num_bits"], default=_NONE)


def _format(weights: Config) -> str:
    """The number format of weights of compressed-tensors. Smaller groups have more scales."""
    bits, group = weights["num_bits"], optional_number(weights, "group_size")
    if weights.get("type") != "float":
        return f"int{bits}-g{group}" if group and group < _USUAL_GROUP else f"int{bits}"
    if bits == 4:
        return "mxfp4" if group == _MXFP4_GROUP else "nvfp4"
    return "mxfp8" if bits == 8 and group == _MXFP4_GROUP else f"fp{bits}"


def _quantizes_experts_only(own: Config, modelopt: Config) -> bool:
    """Whether the modules that quantization leaves out are those of attention."""
    if not first(own, "experts"):
        return False
    places = (_quantized(own), modelopt)
    lists = [place.get(key) for place in places for key in keys()["excluded"]]
    names = [str(name) for names in lists if isinstance(names, list) for name in names]
    # Norms and the index of sparse attention are small.
    small = ("norm", "index", "conv", "bias")
    return any("attn" in name and not any(word in name for word in small) for name in names)
