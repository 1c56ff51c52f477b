"""Rules on number formats; a build accepts some wrong ones, and only disables a feature.

Source: `tensorrt_llm/builder.py` and the attention operator of TensorRT-LLM, 0.18 to 1.2. Paged
context attention cannot read an INT8 cache. It reads an FP8 cache only with certain weight
formats. Otherwise the build disables it with only a warning in its log, and the engine cannot
reuse cache blocks.
"""

from collections.abc import Iterator

from specdec.api.cause import Cause
from specdec.api.gpus import gpu
from specdec.api.matrix import at_least, support
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import GpuClass, ModelSpec
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.backends.rule import invalid

# Weight formats whose attention can compute in FP8.
_FP8_ATTENTION = ("FP8", "W4A8AWQ", "NVFP4")
_OFF = "set it to Auto, or engine.pagedContextFmha and kvCache.reuse to false"


def attention(model: SpeculativeModel, _: Images) -> Cause | None:
    """Paged context attention and FP8 attention support the formats of weights and caches."""
    for role, spec in model.models.items():
        problem = _cache(role, spec) or _fp8(role, spec)
        if problem is not None:
            return invalid(problem)
    return None


def compute_capability(own: GpuClass) -> str | None:
    """The compute capability in the spec, or else of the product; None for an unknown product."""
    known = gpu(own.product) if own.product else None
    return own.compute_capability or (known.compute_capability if known else None)


def removed_formats(model: SpeculativeModel, _: Images) -> Cause | None:
    """The GPU still supports the integer formats of the spec: newer generations dropped some."""
    removed = support(model.spec.runtime.backend).removed
    if removed is None:
        return None
    for role, what, format_ in _formats(model):
        actual = compute_capability(model.gpu(role))
        if actual is None or not at_least(actual, removed.since):
            continue
        if format_ in removed.formats and not at_least(actual, removed.until):
            return Cause(
                AcceptedReason.UNSUPPORTED_GPU,
                f"{what} is {format_}, which GPUs of compute capability {removed.since} to below "
                f"{removed.until} do not support, and GPU {model.gpu(role).product} has {actual}: "
                "set it to FP8 or another format, or choose another GPU product",
            )
    return None


def _formats(model: SpeculativeModel) -> Iterator[tuple[str, str, str]]:
    """The role, the field and the value of each format."""
    for role, spec in model.models.items():
        yield role, f"quantization.method of the {role}", spec.quantization.method
        yield role, f"quantization.kvCache of the {role}", spec.quantization.kv_cache


def _cache(role: str, spec: ModelSpec) -> str | None:
    """Why the cache's format cannot be read by paged context attention."""
    cache, method = spec.quantization.kv_cache, spec.quantization.method
    if not spec.engine.paged_context_fmha:
        return None
    if cache == "FP8" and method not in (*_FP8_ATTENTION, "None"):
        return (
            f"quantization.kvCache of the {role} is FP8 with method {method}, and paged context "
            f"attention reads an FP8 cache only with {', '.join(_FP8_ATTENTION)}: {_OFF}"
        )
    return None


def _fp8(role: str, spec: ModelSpec) -> str | None:
    """Why attention cannot compute in FP8."""
    if not spec.engine.fp8_context_fmha:
        return None
    if spec.quantization.method not in _FP8_ATTENTION:
        return (
            f"engine.fp8ContextFmha of the {role} is true, and quantization.method is "
            f"{spec.quantization.method}: set the method to {', '.join(_FP8_ATTENTION)}, or "
            "fp8ContextFmha to false"
        )
    if spec.engine.paged_context_fmha and spec.quantization.kv_cache != "FP8":
        return (
            f"engine.fp8ContextFmha of the {role} is true, and with pagedContextFmha it needs an "
            f"FP8 cache, but quantization.kvCache is {spec.quantization.kv_cache}: set kvCache to "
            "FP8, or fp8ContextFmha to false"
        )
    return None
