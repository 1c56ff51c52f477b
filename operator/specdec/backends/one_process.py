"""Servers that are one process with draft and target on the same GPUs: their GPUs and sizes."""

from specdec.api.model import SpeculativeModel
from specdec.backends.checkpoint_sizes import (
    AUTO_BYTES,
    DTYPE_BYTES,
    bytes_per_stored_parameter,
    sizes_of,
)
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import EngineSizes, Sizes
from specdec.triton.layout import RankPlan, Server

# Architectures whose caches hold compressed keys and values. Facts that an earlier release read do
# not state their size.
_COMPRESSED = frozenset({"DeepseekV3ForCausalLM"})


def instances(model: SpeculativeModel) -> tuple[tuple[int, ...], ...]:
    """The GPU ordinals of each instance; the first instance has the lowest ordinals."""
    split = model.spec.target.parallelism
    each = split.tensor * split.pipeline
    return tuple(
        tuple(range(first * each, (first + 1) * each))
        for first in range(model.spec.runtime.instances)
    )


def servers(model: SpeculativeModel) -> RankPlan:
    """The first GPUs of the pod; a draft has those of the target."""
    gpus = sum(len(ids) for ids in instances(model))
    return RankPlan((Server(gpus, {"target": tuple(range(gpus))}),))


def sizes(checkpoint: Checkpoint) -> Sizes | None:
    """The sizes of a checkpoint; None if one is not known."""
    known = sizes_of(checkpoint, None)
    if known and checkpoint.facts.architecture in _COMPRESSED and known.cache_width is None:
        return None
    return known


def engine(model: SpeculativeModel, checkpoint: Checkpoint, own: Sizes) -> EngineSizes:
    """What a process has of one model, without heads and drafts; a draft is split as the target.

    With dtype Auto, FP32 checkpoints are served in 16 bits.
    """
    spec = model.spec.target
    dtype = DTYPE_BYTES.get(spec.dtype, AUTO_BYTES)
    return EngineSizes(
        sizes=own,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        bytes_per_body_parameter=bytes_per_stored_parameter(checkpoint, own, dtype),
        bytes_per_value=dtype,
        bytes_per_kv_element=dtype if spec.quantization.kv_cache == "Auto" else 1,
        max_batch_size=spec.limits.max_batch_size,
        max_seq_len=spec.limits.max_seq_len,
        max_num_tokens=spec.limits.max_num_tokens,
    )
