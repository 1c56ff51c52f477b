"""From a resource and the facts of its checkpoints to what its engines take of a GPU."""

from collections.abc import Mapping
from typing import Any

from specdec import backends
from specdec.api.model import Acceptance, Method, ModelSpec, SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Engine, Footprint, Sizes, footprint

_DTYPE_BYTES = {"Float32": 4, "Float16": 2, "BFloat16": 2}
# The converters make 16 bits of everything else.
_AUTO_BYTES = 2
# Bytes of a parameter with its scales: AWQ keeps one FP16 scale for each of 2 inputs of 128 values
# at most, NVFP4 one FP8 scale for 16 values.
_BODY_BYTES = {"FP8": 1.0, "INT8SQ": 1.0, "INT4AWQ": 0.53, "W4A8AWQ": 0.53, "NVFP4": 0.5625}
# Bytes of a parameter in a checkpoint's files, by the dtype in its config.json.
_FILE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Without a number in the configuration: no dense model in use is wider.
_WIDEST = 4
# Experts that a token passes where the configuration's number is not among the facts.
_EXPERTS = 2
_NEEDED = ("vocabSize", "hiddenSize", "layers", "heads")
_MORE = ("kvHeads", "headDim", "intermediateSize", "expertsPerToken")
# No model's number comes near; a damaged configuration must not reach arithmetic.
_MOST = 10**8


def footprints(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
) -> dict[str, Footprint]:
    """The footprint of each model's engine by role; a role whose size is not known is absent."""
    found = {}
    for role, spec in model.models.items():
        checkpoint = checkpoints.get(role)
        prebuilt = checkpoints.get(f"{role}-engine")
        sizes = _sizes(checkpoint, prebuilt) if checkpoint else None
        if sizes is not None:
            found[role] = footprint(_engine(model, role, spec, sizes, checkpoints))
    return found


def _engine(
    model: SpeculativeModel,
    role: str,
    spec: ModelSpec,
    sizes: Sizes,
    checkpoints: Mapping[str, Checkpoint],
) -> Engine:
    speculation, quantization = model.spec.speculation, spec.quantization
    is_target = role == "target"
    dtype = _DTYPE_BYTES.get(spec.dtype, _AUTO_BYTES)
    heads = checkpoints.get("heads") if is_target else None
    prebuilt = checkpoints.get(f"{role}-engine")
    block = speculation.draft_target
    return Engine(
        sizes=sizes,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        body_bytes=_BODY_BYTES.get(quantization.method, dtype),
        dtype_bytes=dtype,
        kv_bytes=dtype if quantization.kv_cache == "Auto" else 1,
        max_batch_size=spec.limits.max_batch_size,
        max_seq_len=spec.limits.max_seq_len,
        max_num_tokens=spec.limits.max_num_tokens,
        draft_len=backends.max_draft_len(model) if is_target else 0,
        head_bytes=heads.bytes if heads else 0,
        # EAGLE's drafter is one decoder layer with a cache of its own; other heads keep none.
        head_layers=1 if is_target and speculation.method is Method.EAGLE else 0,
        gathers_logits=block is not None and block.acceptance is Acceptance.LOGITS,
        file_bytes=prebuilt.bytes if prebuilt and prebuilt.bytes else None,
    )


def _sizes(checkpoint: Checkpoint, prebuilt: Checkpoint | None) -> Sizes | None:
    """The numbers of a checkpoint; None where its configuration is not known.

    Without files a dense model's parameters follow from its configuration, a mixture's do not;
    of a prebuilt engine, which is weighed by its own files, they are not asked.
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
    # Beside a prebuilt engine the checkpoint was fetched without its weights.
    known = 0 if prebuilt else _parameters(checkpoint)
    weighed = prebuilt is not None and prebuilt.bytes > 0
    tied = _tied(facts, known, dense, vocab * hidden)
    experts = _experts(facts)
    if not known and not weighed and (experts > 1 or not facts.get("intermediateSize")):
        return None
    return Sizes(
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        parameters=known or dense + (0 if tied else vocab * hidden),
        tied=tied,
        experts_per_token=experts,
    )


def _parameters(checkpoint: Checkpoint) -> int:
    """Counted from the files' headers, else from their size; 0 when neither is known."""
    counted = int(checkpoint.facts.get("parameters") or 0)
    return counted or checkpoint.bytes // _FILE_BYTES.get(str(checkpoint.facts.get("dtype")), 2)


def _tied(facts: Mapping[str, Any], parameters: int, dense: int, embedding: int) -> bool:
    """Whether the files hold one matrix for both ends, as small models do.

    A configuration that does not say so may leave it to its class, so the count decides.
    """
    countable = bool(parameters and facts.get("intermediateSize"))
    by_count = countable and abs(parameters - dense) < embedding // 2
    return facts.get("tieEmbeddings") is True or by_count


def _experts(facts: Mapping[str, Any]) -> int:
    told = facts.get("expertsPerToken")
    if told:
        return int(told)
    name = str(facts.get("architecture")).lower()
    return _EXPERTS if "mixtral" in name or "moe" in name else 1
