"""Rules on specs of the TensorRT backend: GPUs, attention and sizes of engines."""

from collections.abc import Iterator

from specdec.api.cause import Cause
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.api.versions import at_least
from specdec.backends.facts import Images
from specdec.backends.rule import Rule
from specdec.backends.tensorrt import precision


def capability(model: SpeculativeModel, _: Images) -> Cause | None:
    """Each GPU product has the compute capability that its engines need."""
    problems = (_capability(model, role) for role in model.models)
    return next((problem for problem in problems if problem), None)


def _capability(model: SpeculativeModel, role: str) -> Cause | None:
    """Why the engine of a role cannot run on its GPU product."""
    backend, own, field = model.spec.runtime.backend, model.gpu(role), model.gpu_field(role)
    floor = support(backend).compute_capability
    if floor is None or own.product is None:
        return None
    actual = precision.compute_capability(own)
    for what, least in ((f"backend {backend}", floor), *_capabilities(model, role)):
        if actual is None and what.startswith("backend"):
            # An unknown product is accepted, unless a setting of the spec needs more than the
            # backend does.
            continue
        if actual is None:
            return Cause(
                AcceptedReason.UNSUPPORTED_GPU,
                f"{field}.product {own.product} is not in this release's table, and {what} "
                f"needs compute capability {least}: set {field}.computeCapability",
            )
        if not at_least(actual, least):
            return Cause(
                AcceptedReason.UNSUPPORTED_GPU,
                f"{what} needs compute capability {least}, and GPU {own.product} has "
                f"{actual}: choose another GPU product, or change that setting",
            )
    return None


def _capabilities(model: SpeculativeModel, role: str) -> Iterator[tuple[str, str]]:
    """The settings that need a newer GPU than the backend does, each with its capability."""
    row, spec = support(model.spec.runtime.backend), model.models[role]
    quantization = spec.quantization
    if quantization.method in row.quantization:
        least = row.quantization[quantization.method]
        yield f"quantization.method {quantization.method} of the {role}", least
    if quantization.kv_cache in row.kv_cache_quantization:
        least = row.kv_cache_quantization[quantization.kv_cache]
        yield f"quantization.kvCache {quantization.kv_cache} of the {role}", least
    if spec.engine.fp8_context_fmha:
        yield f"engine.fp8ContextFmha of the {role}", row.quantization["FP8"]


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """Pipeline parallelism with speculation: allowed, but known to hang."""
    stages = {role: spec.parallelism.pipeline for role, spec in model.models.items()}
    role = next((role for role, count in stages.items() if count > 1), None)
    if role is None or not model.spec.speculation.speculates:
        return ()
    return (
        f"parallelism.pipeline of the {role} is {stages[role]}, and releases are known to hang "
        "while they load a speculating engine in pipeline stages: raise tensor instead where the "
        "GPUs of one node allow it",
    )


# The order matters: a rule may rely on what the rules before it have checked.
RULES: tuple[Rule, ...] = (
    capability,
    precision.removed_formats,
)
