"""The sizes of a checkpoint, from the facts that the fetch Job read, for the memory plan."""

from collections.abc import Mapping
from typing import Any

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
_NEEDED = ("vocabSize", "hiddenSize", "layers", "heads")
_MORE = (
    *("kvHeads", "headDim", "intermediateSize"),
    *("expertsPerToken", "sharedExperts", "expertSize", "cacheWidth"),
)
# Larger than any model's numbers: a damaged configuration must not reach the arithmetic.
_MOST = 10**8


def bytes_per_stored_parameter(
    checkpoint: Checkpoint | None, sizes: Sizes, dtype_bytes: int
) -> float:
    """Bytes of a parameter of a model that the build does not quantize.

    A checkpoint that is already quantized keeps its format, so its files have the size of the
    engine; embedding and output projection are never quantized.
    """
    quantized = checkpoint is not None and checkpoint.facts.get("quantization")
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
    if any(not facts.get(name) for name in _NEEDED):
        return None
    if any(int(facts.get(name) or 0) > _MOST for name in (*_NEEDED, *_MORE)):
        return None
    vocab, hidden, layers, heads = (int(facts[name]) for name in _NEEDED)
    kv_heads = int(facts.get("kvHeads") or heads)
    head_dim = int(facts.get("headDim") or hidden // heads)
    intermediate = int(facts.get("intermediateSize") or _WIDEST * hidden)
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    dense = layers * (attention + 3 * hidden * intermediate) + vocab * hidden
    # Where an engine is prebuilt, the checkpoint is fetched without its weights.
    parameters = 0 if prebuilt else _parameters(checkpoint)
    has_engine = prebuilt is not None and prebuilt.bytes > 0
    tied = _tied(facts, parameters, dense, vocab * hidden)
    experts = _experts(facts)
    if not parameters and not has_engine and (experts > 1 or not facts.get("intermediateSize")):
        return None
    return Sizes(
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=int(facts.get("expertSize") or intermediate),
        parameters=parameters or dense + (0 if tied else vocab * hidden),
        tied=tied,
        experts_per_token=experts + int(facts.get("sharedExperts") or 0),
        cache_width=int(facts.get("cacheWidth") or 0) or None,
        routed=int(facts.get("expertParameters") or 0),
    )


def is_mixture(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is a mixture of experts."""
    return _experts(checkpoint.facts) > 1


def _parameters(checkpoint: Checkpoint) -> int:
    """The number from the headers of the files, else from their size; 0 if neither is known."""
    counted = int(checkpoint.facts.get("parameters") or 0)
    return counted or checkpoint.bytes // FILE_BYTES.get(str(checkpoint.facts.get("dtype")), 2)


def _tied(facts: Mapping[str, Any], parameters: int, dense: int, embedding: int) -> bool:
    """Whether one matrix is both input and output embedding, as in small models.

    If the configuration lacks the field, the model's class may decide. The number of parameters
    then shows the decision.
    """
    countable = bool(parameters and facts.get("intermediateSize"))
    by_count = countable and abs(parameters - dense) < embedding // 2
    return facts.get("tieEmbeddings") is True or by_count


def _experts(facts: Mapping[str, Any]) -> int:
    """The routed experts that a token passes, 1 for a dense model."""
    if known := facts.get("expertsPerToken"):
        return int(known)
    name = str(facts.get("architecture")).lower()
    return _EXPERTS if "mixtral" in name or "moe" in name else 1
