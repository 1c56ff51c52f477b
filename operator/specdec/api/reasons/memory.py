"""Reasons of `MemoryFits`: the plan of the GPU memory."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.MEMORY_FITS)


class MemoryReason(Reason):
    """Reasons of `MemoryFits`."""

    SUFFICIENT_GPU_MEMORY = _SECTION.progress(
        "SufficientGpuMemory",
        "all models fit, and each cache holds a full batch of sequences of full length",
    )
    TIGHT_GPU_MEMORY = _SECTION.progress(
        "TightGpuMemory",
        "all models fit, but a cache holds fewer sequences of full length than "
        "`limits.maxBatchSize`",
        "accept that sequences wait, lower a limit that the message names, or quantize the cache",
    )
    INSUFFICIENT_GPU_MEMORY = _SECTION.failed(
        "InsufficientGpuMemory",
        "the models do not fit, a cache cannot hold one sequence of full length, fixed cache "
        "sizes are too large, or the GPUs of a build cannot hold a model while it is quantized",
        "change the field in the message, which has the numbers",
    )
    NOT_NEEDED = _SECTION.progress("NotNeeded", "the backend uses the memory of the host")
    UNCHECKED = _SECTION.progress(
        "Unchecked", "the plan does not fit, and `spec.checks.memory` is `Disabled`"
    )
    UNKNOWN_GPU = _SECTION.progress(
        "UnknownGpu",
        "this release does not know the memory of `spec.gpu.product`; it plans no caches",
        "set `spec.gpu.product` to the nodes' label, or `spec.gpu.memoryMiB`",
    )
    UNKNOWN_SIZE = _SECTION.progress(
        "UnknownSize",
        "the configuration of a checkpoint is not known, or it lacks the sizes of a compressed "
        "cache; the operator plans no caches",
        "in `specdec plan`, name the checkpoint with `--checkpoint ROLE=DIR`",
    )
