"""Memory plans of public models, and the GPU products of these plans."""

from specdec.api.conditions import Type
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.pipeline.observed import Observed
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages.memory import memory
from support.simulated_cluster import IMAGES, NOW
from unit.pipeline.public import checkpoint

T4, A10, L4, L40S = "Tesla-T4", "NVIDIA-A10", "NVIDIA-L4", "NVIDIA-L40S"
A100, H100, H200 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"
B200, SLICE = "NVIDIA-B200", "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb"
FITS, TIGHT = "SufficientGpuMemory", "TightGpuMemory"
NOT = "InsufficientGpuMemory"


def planned(model: SpeculativeModel, checkpoints: dict[str, Checkpoint]) -> Outcome:
    return memory(Context(model, Observed(NOW), IMAGES, Facts(checkpoints=checkpoints)))


def outcome(model: SpeculativeModel, **checkpoints: str) -> Outcome:
    return planned(model, {role: checkpoint(role, name) for role, name in checkpoints.items()})


def judged(model: SpeculativeModel, **checkpoints: str) -> tuple[str, str]:
    (condition,) = outcome(model, **checkpoints).conditions
    assert condition.type is Type.MEMORY_FITS
    assert Type.MEMORY_FITS in condition.reason.types
    return condition.status, condition.reason
