"""The memory that a resource's engines need, from its spec and the facts of its checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specdec.api.model import ModelSpec, SpeculativeModel
from specdec.backends import methods
from specdec.backends.building import draft_length
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Engine, Footprint, Sizes, footprint
from specdec.backends.ranks import ranks

_DTYPE_BYTES = {"Float32": 4, "Float16": 2, "BFloat16": 2}
# For other values of `dtype`: the converters store those models in 16 bits.
_AUTO_BYTES = 2
# Bytes of a parameter, including its scales (docs/memory.md). NVFP4 has one FP8 scale for 16
# parameters; AWQ has FP16 scales for groups of up to 128.
_BODY_BYTES = {"FP8": 1.0, "INT8SQ": 1.0, "INT4AWQ": 0.53, "W4A8AWQ": 0.53, "NVFP4": 0.5625}
# Bytes of a parameter in a checkpoint's files, by the dtype in its config.json.
_FILE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# The ratio of intermediateSize to hiddenSize if the configuration lacks the former. No dense model
# has a larger ratio.
_WIDEST = 4
# Experts per token where the facts lack their number.
_EXPERTS = 2
_NEEDED = ("vocabSize", "hiddenSize", "layers", "heads")
_MORE = ("kvHeads", "headDim", "intermediateSize", "expertsPerToken")
# Larger than any model's numbers: a damaged configuration must not reach the arithmetic.
_MOST = 10**8


def footprints(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
) -> dict[str, Footprint]:
    """The footprint of each engine by role, without the roles whose size is not known."""
    needs = {}
    for role, spec in model.models.items():
        checkpoint = checkpoints.get(role)
        prebuilt = checkpoints.get(f"{role}-engine")
        sizes = _sizes(checkpoint, prebuilt) if checkpoint else None
        if sizes is not None:
            need = footprint(_engine(model, role, spec, sizes, checkpoints))
            needs[role] = _with_calibration(need, model, role, sizes, checkpoints)
    return needs


def _with_calibration(
    need: Footprint,
    model: SpeculativeModel,
    role: str,
    sizes: Sizes,
    checkpoints: Mapping[str, Checkpoint],
) -> Footprint:
    """The footprint with the memory that quantizing needs; unchanged without quantization.

    Calibration runs the model in its own precision, and the export holds the quantized copy beside
    it: the guide for Llama states 210 GB for 70 billion parameters in FP8. A build with resource
    claims is not estimated, because claims may have any number of GPUs.
    """
    spec = model.models[role]
    copy = _BODY_BYTES.get(spec.quantization.method)
    if copy is None or f"{role}-engine" in checkpoints or model.spec.build.resource_claims:
        return need
    gpus = len(ranks(model).devices[role])
    own = _DTYPE_BYTES.get(spec.dtype, _AUTO_BYTES)
    heads = checkpoints.get("heads") if role == "target" else None
    total = sizes.parameters * (own + copy) + (heads.bytes if heads else 0)
    return replace(need, calibration=math.ceil(total / gpus), build_gpus=gpus)


def _stored_bytes(checkpoint: Checkpoint | None, sizes: Sizes, dtype: int) -> float:
    """Bytes of a parameter of a model that the build does not quantize.

    A checkpoint that is already quantized keeps its format, so its files have the size of the
    engine; embedding and output projection are never quantized.
    """
    quantized = checkpoint is not None and checkpoint.facts.get("quantization")
    if checkpoint is None or not quantized or not checkpoint.bytes or not sizes.body:
        return dtype
    ends = sizes.embedding * (1 if sizes.tied else 2) * _AUTO_BYTES
    return max(checkpoint.bytes - ends, 0) / sizes.body


def _engine(
    model: SpeculativeModel,
    role: str,
    spec: ModelSpec,
    sizes: Sizes,
    checkpoints: Mapping[str, Checkpoint],
) -> Engine:
    method, quantization = methods.of(model), spec.quantization
    is_target = role == "target"
    dtype = _DTYPE_BYTES.get(spec.dtype, _AUTO_BYTES)
    heads = checkpoints.get("heads") if is_target else None
    prebuilt = checkpoints.get(f"{role}-engine")
    return Engine(
        sizes=sizes,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        body_bytes=_BODY_BYTES.get(quantization.method)
        or _stored_bytes(checkpoints.get(role), sizes, dtype),
        dtype_bytes=dtype,
        kv_bytes=dtype if quantization.kv_cache == "Auto" else 1,
        max_batch_size=spec.limits.max_batch_size,
        max_seq_len=spec.limits.max_seq_len,
        max_num_tokens=spec.limits.max_num_tokens,
        draft_len=draft_length(model, role, prebuilt),
        head_bytes=heads.bytes if heads else 0,
        head_layers=method.head_cache_layers if is_target else 0,
        gathers_logits=model.spec.speculation.block.compares_logits,
        file_bytes=prebuilt.bytes if prebuilt and prebuilt.bytes else None,
    )


def _sizes(checkpoint: Checkpoint, prebuilt: Checkpoint | None) -> Sizes | None:
    """The sizes of a checkpoint; None if its facts are not enough.

    Without weight files, the number of parameters of a dense model follows from its configuration.
    That of a mixture of experts does not, so such a model needs a prebuilt engine, whose file size
    is known.
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
        intermediate=intermediate,
        parameters=parameters or dense + (0 if tied else vocab * hidden),
        tied=tied,
        experts_per_token=experts,
    )


def _parameters(checkpoint: Checkpoint) -> int:
    """The number in the headers of the files, or an estimate from their size; 0 without either."""
    counted = int(checkpoint.facts.get("parameters") or 0)
    return counted or checkpoint.bytes // _FILE_BYTES.get(str(checkpoint.facts.get("dtype")), 2)


def _tied(facts: Mapping[str, Any], parameters: int, dense: int, embedding: int) -> bool:
    """Whether one matrix is both input and output embedding, as in small models.

    A configuration without the field may leave this to the model's class: the number of
    parameters decides.
    """
    countable = bool(parameters and facts.get("intermediateSize"))
    by_count = countable and abs(parameters - dense) < embedding // 2
    return facts.get("tieEmbeddings") is True or by_count


def _experts(facts: Mapping[str, Any]) -> int:
    if known := facts.get("expertsPerToken"):
        return int(known)
    name = str(facts.get("architecture")).lower()
    return _EXPERTS if "mixtral" in name or "moe" in name else 1
