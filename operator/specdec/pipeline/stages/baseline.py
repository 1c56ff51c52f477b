"""The resource that a benchmark compares with, and why the comparison cannot start."""

from pydantic import ValidationError

from specdec.api.cause import Cause
from specdec.api.conditions import Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import BenchmarkReason
from specdec.pipeline.stage import Context

_FIELD = "spec.benchmark.baseline.modelRef"


def baseline(context: Context) -> SpeculativeModel | None:
    """The other resource; None without one, or if its spec is invalid."""
    if context.observed.baseline is None:
        return None
    try:
        return SpeculativeModel.parse(dict(context.observed.baseline))
    except ValidationError:
        return None


def obstacle(context: Context, other: SpeculativeModel | None) -> Cause | None:
    """Why the comparison cannot start; None if it can, or if the spec names no other resource."""
    name, body = context.model.spec.benchmark.baseline_name, context.observed.baseline
    if name is None:
        return None
    if body is None or body["metadata"].get("deletionTimestamp"):
        return Cause(
            BenchmarkReason.BASELINE_MISSING,
            f"SpeculativeModel {name} of {_FIELD} does not exist: create it, or correct the name",
        )
    if other is not None and other.spec.serving.tls is not None:
        return Cause(
            BenchmarkReason.BASELINE_MISSING,
            f"{_FIELD} is {name}, which has serving.tls: name a resource without it",
        )
    if other is None or not _ready(other):
        return Cause(BenchmarkReason.BASELINE_WAITS, f"waits until {name} is Ready")
    return None


def _ready(model: SpeculativeModel) -> bool:
    """Whether a resource is Ready for its present spec."""
    return any(
        condition["type"] == Type.READY
        and condition["status"] == "True"
        and condition.get("observedGeneration") == model.metadata.generation
        for condition in model.status.get("conditions", [])
    )
