"""The GPUs and the memory that a build with `trtllm-build` needs."""

from collections.abc import Mapping
from typing import Any

from specdec.desired.engine import Needs

# Memory divided by the size of the weights. Conversion holds the whole checkpoint and one rank of
# the result; the build holds one rank and TensorRT's workspace. This is enough for either.
_COPIES = 1.5
# Bytes of Python, torch and a CUDA context, for every model.
_BASE = 8 << 30
# `--shm-size` of the containers in TensorRT-LLM's and Triton's guides. Each GPU has a process of
# its own where ranks are built side by side, and MPI and torch share memory between them.
_SHARED = 2 << 30


def needs(plan: Mapping[str, Any], devices: int, weights: int) -> Needs:
    """The GPUs and the memory (bytes) for the build of a plan.

    One GPU can build the engines of all ranks, one after another. With `engine.workers`, that many
    GPUs build at the same time. Quantization needs a GPU for every rank, because it runs the whole
    model for calibration.

    Args:
        plan: the build plan.
        devices: GPUs that the engine is served on.
        weights: bytes of the checkpoints that the plan reads.
    """
    quantized = plan["quantization"]["method"] != "None"
    gpus = devices if quantized else min(plan["engine"].get("workers") or 1, devices)
    return Needs(gpus, int(weights * _COPIES) + _BASE, gpus * _SHARED)
