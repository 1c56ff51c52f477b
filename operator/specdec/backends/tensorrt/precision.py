"""Number formats that the GPU of a spec no longer supports."""

from collections.abc import Iterator

from specdec.api.cause import Cause
from specdec.api.gpus import gpu
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import GpuClass
from specdec.api.reasons import AcceptedReason
from specdec.api.versions import at_least
from specdec.backends.facts import Images


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
