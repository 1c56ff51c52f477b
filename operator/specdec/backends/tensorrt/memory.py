"""The memory that a resource's engines need, from its spec and the facts of its checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import replace

from specdec.api.model import ModelSpec, SpeculativeModel
from specdec.backends import methods
from specdec.backends.building import draft_length
from specdec.backends.checkpoint_sizes import (
    AUTO_BYTES,
    DTYPE_BYTES,
    bytes_per_stored_parameter,
    sizes_of,
)
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import EngineSizes, Footprint, Sizes, footprint
from specdec.backends.ranks import ranks

# Bytes of a parameter, including its scales (docs/memory.md). NVFP4 has one FP8 scale for 16
# parameters; AWQ has FP16 scales for groups of up to 128.
_BODY_BYTES = {"FP8": 1.0, "INT8SQ": 1.0, "INT4AWQ": 0.53, "W4A8AWQ": 0.53, "NVFP4": 0.5625}


def footprints(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
) -> dict[str, Footprint]:
    """The footprint of each engine by role, without the roles whose size is not known."""
    needs = {}
    for role, spec in model.models.items():
        checkpoint = checkpoints.get(role)
        prebuilt = checkpoints.get(f"{role}-engine")
        sizes = sizes_of(checkpoint, prebuilt) if checkpoint else None
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
    own = DTYPE_BYTES.get(spec.dtype, AUTO_BYTES)
    heads = checkpoints.get("heads") if role == "target" else None
    total = sizes.parameters * (own + copy) + (heads.bytes if heads else 0)
    return replace(need, calibration=math.ceil(total / gpus), build_gpus=gpus)


def _engine(
    model: SpeculativeModel,
    role: str,
    spec: ModelSpec,
    sizes: Sizes,
    checkpoints: Mapping[str, Checkpoint],
) -> EngineSizes:
    method, quantization = methods.of(model), spec.quantization
    is_target = role == "target"
    dtype = DTYPE_BYTES.get(spec.dtype, AUTO_BYTES)
    heads = checkpoints.get("heads") if is_target else None
    prebuilt = checkpoints.get(f"{role}-engine")
    return EngineSizes(
        sizes=sizes,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        bytes_per_body_parameter=_BODY_BYTES.get(quantization.method)
        or bytes_per_stored_parameter(checkpoints.get(role), sizes, dtype),
        bytes_per_value=dtype,
        bytes_per_kv_element=dtype if quantization.kv_cache == "Auto" else 1,
        max_batch_size=spec.limits.max_batch_size,
        max_seq_len=spec.limits.max_seq_len,
        max_num_tokens=spec.limits.max_num_tokens,
        draft_len=draft_length(model, role, prebuilt),
        head_bytes=heads.bytes if heads else 0,
        head_layers=method.head_cache_layers if is_target else 0,
        gathers_logits=model.spec.speculation.block.compares_logits,
        file_bytes=prebuilt.bytes if prebuilt and prebuilt.bytes else None,
    )
