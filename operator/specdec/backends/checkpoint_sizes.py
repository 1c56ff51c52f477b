"""The sizes of a checkpoint, from the facts that the fetch Job read, for the memory plan."""

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Sizes

DTYPE_BYTES = {"Float32": 4, "Float16": 2, "BFloat16": 2}
# Bytes of a parameter with dtype Auto: the converters store other formats in 16 bits.
AUTO_BYTES = 2
# Bytes of a parameter in a checkpoint's files, by the dtype in its config.json.
FILE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# The assumed ratio of intermediateSize to hiddenSize if the configuration lacks intermediateSize.
# No dense model has a larger ratio.
_WIDEST = 4
# Experts per token where the facts lack their number.
_EXPERTS = 2
# Larger than any model's numbers: a damaged configuration must not reach the arithmetic.
_MOST = 10**8


def bytes_per_stored_parameter(
    checkpoint: Checkpoint | None, sizes: Sizes, dtype_bytes: int
) -> float:
    """Bytes of a parameter of a model that the build does not quantize.

    A checkpoint that is already quantized keeps its format, so its files have the size of the
    engine; embedding and output projection are never quantized.
    """
    quantized = checkpoint is not None and checkpoint.facts.quantization
    if checkpoint is None or not quantized or not checkpoint.bytes or not sizes.body:
        return dtype_bytes
    ends = sizes.embedding * (1 if sizes.tied else 2) * AUTO_BYTES
    return max(checkpoint.bytes - ends, 0) / sizes.body


def sizes_of(checkpoint: Checkpoint, prebuilt: Checkpoint | None) -> Sizes | None:
    """The sizes of a checkpoint; None if its facts are not enough.

    Without weight files, the number of parameters of a dense model follows from its configuration.
    For a mixture of experts it does not follow. Such a model needs a prebuilt engine, whose file
    size is known.
    """
    facts = checkpoint.facts
    vocab, hidden, layers, heads = facts.vocab_size, facts.hidden_size, facts.layers, facts.heads
    if not (vocab and hidden and layers and heads) or facts.unplanned_caches:
        return None
    if _is_absurd(facts):
        return None
    kv_heads = facts.kv_heads or heads
    head_dim = facts.head_dim or hidden // heads
    intermediate = facts.intermediate_size or _WIDEST * hidden
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    dense = layers * (attention + 3 * hidden * intermediate) + vocab * hidden
    # Where an engine is prebuilt, the checkpoint is fetched without its weights.
    parameters = 0 if prebuilt else _parameters(checkpoint)
    has_engine = prebuilt is not None and prebuilt.bytes > 0
    tied = _tied(facts, parameters, dense, vocab * hidden)
    experts = _experts(facts)
    if not parameters and not has_engine and (experts > 1 or not facts.intermediate_size):
        return None
    return Sizes(
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=facts.expert_size or intermediate,
        parameters=parameters or dense + (0 if tied else vocab * hidden),
        tied=tied,
        experts_per_token=experts + (facts.shared_experts or 0),
        cache_width=facts.cache_width or None,
        routed=facts.expert_parameters or 0,
        value_head_dim=facts.value_head_dim,
        index=facts.index_bytes or 0,
        full_layers=facts.full_layers,
        window_layers=facts.window_layers or 0,
        window=facts.window or 0,
        window_kv_heads=facts.window_kv_heads or kv_heads,
        window_head_dim=facts.window_head_dim or head_dim,
        state=facts.state_size or 0,
    )


def is_mixture(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is a mixture of experts."""
    return _experts(checkpoint.facts) > 1


def _parameters(checkpoint: Checkpoint) -> int:
    """The number from the headers of the files, else from their size; 0 if neither is known."""
    stored = FILE_BYTES.get(checkpoint.facts.dtype or "", 2)
    return checkpoint.facts.parameters or checkpoint.bytes // stored


def _is_absurd(facts: CheckpointFacts) -> bool:
    sizes = (
        *(facts.vocab_size, facts.hidden_size, facts.layers, facts.heads, facts.kv_heads),
        *(facts.head_dim, facts.intermediate_size, facts.experts_per_token),
        *(facts.shared_experts, facts.expert_size, facts.cache_width, facts.value_head_dim),
        *(facts.full_layers, facts.window_layers, facts.window_kv_heads, facts.window_head_dim),
    )
    return any((size or 0) > _MOST for size in sizes)


def _tied(facts: CheckpointFacts, parameters: int, dense: int, embedding: int) -> bool:
    """Whether one matrix is both input and output embedding, as in small models.

    If the configuration lacks the field, the model's class may decide. The number of parameters
    then shows the decision.
    """
    countable = bool(parameters and facts.intermediate_size)
    by_count = countable and abs(parameters - dense) < embedding // 2
    return facts.tie_embeddings is True or by_count


def _experts(facts: CheckpointFacts) -> int:
    """The routed experts that a token passes, 1 for a dense model."""
    if facts.experts_per_token:
        return facts.experts_per_token
    name = (facts.architecture or "").lower()
    return _EXPERTS if "mixtral" in name or "moe" in name else 1
