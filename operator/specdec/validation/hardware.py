"""Rules on GPUs, ranks and what of an engine depends on them."""

from collections.abc import Iterator

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.gpus import gpu
from specdec.api.matrix import at_least, support
from specdec.api.model import Method, ModelSpec, SpeculativeModel
from specdec.backends.facts import Images
from specdec.desired.pod import GPU
from specdec.triton.layout import RankError
from specdec.validation.rule import invalid


def capability(model: SpeculativeModel, _: Images) -> Cause | None:
    """The GPU product is known as far as engines depend on it, and can what they ask."""
    backend, wanted = model.spec.runtime.backend, model.spec.gpu
    floor = support(backend).compute_capability
    if floor is None:
        return None
    if wanted.product is None:
        return invalid(
            f"spec.gpu.product is empty, and engines of backend {backend} run only on the product "
            "they were built on: set it to the nodes' label nvidia.com/gpu.product"
        )
    known = gpu(wanted.product)
    has = wanted.compute_capability or (known.compute_capability if known else None)
    for what, least in ((f"backend {backend}", floor), *_capabilities(model)):
        if has is None and what.startswith("backend"):
            # An unknown product is believed to be new enough until a quantization depends on it.
            continue
        if has is None:
            return Cause(
                "UnsupportedGpu",
                f"spec.gpu.product {wanted.product} is not in this release's table, and {what} "
                f"needs compute capability {least}: set spec.gpu.computeCapability",
            )
        if not at_least(has, least):
            return Cause(
                "UnsupportedGpu",
                f"{what} needs compute capability {least}, and GPU {wanted.product} has "
                f"{has}: choose another GPU product, or do without",
            )
    return None


def _capabilities(model: SpeculativeModel) -> Iterator[tuple[str, str]]:
    """What each model needs of the GPU beyond its backend: the field's words, the capability."""
    row = support(model.spec.runtime.backend)
    for role, spec in model.models.items():
        quantization = spec.quantization
        if quantization.method in row.quantization:
            least = row.quantization[quantization.method]
            yield f"quantization.method {quantization.method} of the {role}", least
        if quantization.kv_cache in row.kv_cache_quantization:
            least = row.kv_cache_quantization[quantization.kv_cache]
            yield f"quantization.kvCache {quantization.kv_cache} of the {role}", least
        if spec.engine.fp8_context_fmha:
            yield f"engine.fp8ContextFmha of the {role}", row.quantization["FP8"]


def paging(model: SpeculativeModel, _: Images) -> Cause | None:
    """Blocks are reused, and prompts cut into parts, only with paged context attention."""
    runtime, drafts = model.spec.runtime, model.spec.speculation.method is Method.DRAFT_TARGET
    if support(runtime.backend).compute_capability is None:
        return None  # a backend without attention kernels to choose from
    for role, spec in model.models.items():
        if drafts and not spec.kv_cache.reuse:
            return invalid(
                f"kvCache.reuse of the {role} is false, and every round of DraftTarget sends the "
                "sequence so far once more: set it to true"
            )
        user = _needs_paged(spec, chunked=runtime.chunked_context)
        if user and not spec.engine.paged_context_fmha:
            return invalid(
                f"engine.pagedContextFmha of the {role} is false, and {user} needs it: set it to "
                "true"
            )
    return None


def _needs_paged(spec: ModelSpec, *, chunked: bool) -> str:
    if chunked:
        return "runtime.chunkedContext"
    return "kvCache.reuse" if spec.kv_cache.reuse else ""


def claims(model: SpeculativeModel, _: Images) -> Cause | None:
    """GPUs are claimed or counted: a pod that does both takes them twice."""
    spec = model.spec
    for field, part in (("serving", spec.serving), ("build", spec.build)):
        counted = {**part.resources.get("requests", {}), **part.resources.get("limits", {})}
        if part.resource_claims and GPU in counted:
            return invalid(
                f"spec.{field} has resourceClaims, and its resources count {GPU} {counted[GPU]}: "
                f"remove {GPU} from spec.{field}.resources, or the claims"
            )
    return None


def ranks(model: SpeculativeModel, _: Images) -> Cause | None:
    """There are devices and ranks for it."""
    try:
        backends.strategy(model.spec.runtime.backend).ranks(model)
    except RankError as error:
        return Cause("InvalidDevices", str(error))
    return None
