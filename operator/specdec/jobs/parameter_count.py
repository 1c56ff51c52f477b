"""The number of parameters that a configuration implies, for a plan without weight files.

Norms, biases, routers and encoders of images are left out: they are far below one percent, or a
few.
"""

from specdec.jobs import layer_facts
from specdec.jobs.checkpoint_config import INTEGER_LIMIT, Config, optional_number
from specdec.jobs.model_keys import count, first, language_model, of_model


def parameters(config: Config) -> int | None:
    """The number of parameters of the language model; None where a width is not stated."""
    own = language_model(config)
    vocab, hidden = first(own, "vocab_size"), first(own, "hidden_size")
    layers = layer_facts.number(own)
    if not (vocab and hidden and layers):
        return None
    mixers, networks = _mixers(own, layers), _network_parameters(own)
    if not mixers or networks is None:
        return None
    ends = vocab * hidden * (1 if own.get("tie_word_embeddings") is True else 2)
    sizes = ("vocab_size_per_layer_input", "hidden_size_per_layer_input")
    inputs = [optional_number(own, size) or 0 for size in sizes]
    total = mixers + networks + ends + layers * inputs[0] * inputs[1]
    return total if total < INTEGER_LIMIT else None


def expert_parameters(own: Config) -> int | None:
    """Parameters of all routed experts; None for a dense model, or if a width is not stated."""
    experts, width = (first(own, fact) or 0 for fact in ("experts", "expert_size"))
    entrance = first(own, "expert_input") or first(own, "hidden_size") or 0
    total = _matrices(own) * network_counts(own)[1] * experts * width * entrance
    return total if 0 < total < INTEGER_LIMIT else None


def shared_experts(own: Config) -> int:
    """Experts of the usual width that every token passes."""
    width, usual = first(own, "shared_width"), first(own, "expert_size")
    return -(-width // usual) if width and usual else first(own, "shared_experts") or 0


def network_counts(own: Config) -> tuple[int, int]:
    """The number of dense feed-forward networks, and of layers with experts.

    A layer that predicts a further token is a whole layer.
    """
    layers, further = layer_facts.number(own) or 0, first(own, "next_token_layers") or 0
    listed = layer_facts.listed_networks(own, layers)
    if listed is not None:
        dense, mixed = listed
    elif not first(own, "experts"):
        dense, mixed = layers, 0
    else:
        dense = max([min(first(own, "dense_layers") or 0, layers), *_listed_dense(own, layers)])
        mixed = (layers - dense) // (first(own, "expert_interval") or 1)
        dense = layers - mixed
    if mixed and not of_model("dense_predictions", own):
        mixed += further
    else:
        dense += further
    return dense + mixed * (of_model("networks_beside_experts", own) or 0), mixed


def query_width(own: Config) -> int | None:
    """The width of a query of multi-head latent attention; None for any other attention."""
    if not optional_number(own, "kv_lora_rank"):
        return None
    return total_of(own, "qk_nope_head_dim", "qk_rope_head_dim")


def total_of(own: Config, *names: str) -> int | None:
    """The sum of several numbers; None unless the first is positive and all are stated."""
    values = [optional_number(own, name) for name in names]
    known = [value for value in values if value is not None]
    total = sum(known)
    return total if len(known) == len(values) and known[0] and total < INTEGER_LIMIT else None


def _network_parameters(own: Config) -> int | None:
    """Parameters of all feed-forward networks; None if a width is not stated."""
    hidden, matrices = first(own, "hidden_size") or 0, _matrices(own)
    dense, mixed = network_counts(own)
    width, expert = first(own, "intermediate_size"), first(own, "expert_size")
    if (dense and not (width or expert)) or (mixed and not expert):
        return None
    total = matrices * dense * hidden * (width or expert or 0)
    if not mixed:
        return total
    shared = first(own, "shared_width") or (first(own, "shared_experts") or 0) * (expert or 0)
    # Experts may read a projection of the hidden states that is narrower.
    narrow = 2 * mixed * hidden * (first(own, "expert_input") or 0)
    routed = expert_parameters(own)
    return routed and total + routed + narrow + matrices * mixed * hidden * shared


def _matrices(own: Config) -> int:
    """Matrices of a feed-forward network or expert."""
    return of_model("matrices", own) or 3


def _listed_dense(own: Config, layers: int) -> list[int]:
    """The number of dense layers by each list about layers."""
    numbers = []
    for key, entry in (("moe_layer_freq", 0), ("mlp_layer_types", "dense")):
        stated = own.get(key)
        if isinstance(stated, list):
            numbers.append(min(stated[:layers].count(entry), layers))
    dense, mixed = own.get("mlp_only_layers"), own.get("moe_layers_enum")
    if isinstance(dense, list):
        numbers.append(min(len(dense), layers))
    if isinstance(mixed, str):
        mixed = mixed.split(",")
    if isinstance(mixed, list) and mixed:
        numbers.append(max(layers - len(mixed), 0))
    return numbers


def _mixers(own: Config, layers: int) -> int:
    """Parameters of attention, linear attention and state spaces; 0 where a size is not stated."""
    kinds = layer_facts.kinds(own, layers, first(own, "window"))
    attention, windowed = _attention(own, "full"), _attention(own, "window")
    states = layer_facts.mixer_parameters(own) or attention
    known = {"full": attention, "window": windowed, "state": states, "none": 0}
    total = sum(number * known.get(kind, attention) for kind, number in kinds.items())
    return total + (first(own, "next_token_layers") or 0) * attention if attention else 0


def _attention(own: Config, kind: str) -> int:
    """Parameters of one layer's attention; 0 where a size is not stated."""
    heads, hidden = first(own, "heads") or 0, first(own, "hidden_size") or 0
    query = query_width(own)
    if query:
        rank, rope, value, down = (
            count(own.get(key)) or 0
            for key in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
        )
        queries = down * (hidden + heads * query) if down else hidden * heads * query
        latent = hidden * (rank + rope) + rank * heads * (query - rope + value)
        return queries + latent + heads * value * hidden
    kv_heads = first(own, f"{kind}_kv_heads") or first(own, "kv_heads") or heads
    width = first(own, f"{kind}_head_dim") or first(own, "head_dim")
    width = width or (hidden // heads if heads else 0)
    value = first(own, "value_dim") or width
    gate = heads * width if own.get("attn_output_gate") is True else 0
    return hidden * (heads * (width + value) + kv_heads * (width + value) + gate)
