"""Rules on GPUs and ranks."""

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.gpus import gpu, labels
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.backends.rule import invalid
from specdec.desired.pod import GPU
from specdec.triton.layout import RankError


def products(model: SpeculativeModel, _: Images) -> Cause | None:
    """A GPU product is the value of a node label: servers with a short name would never start."""
    if not support(model.spec.runtime.backend).on_gpus:
        return None
    for role in model.models:
        own, field = model.gpu(role), model.gpu_field(role)
        if own.product is None or own.memory_mi_b is not None or gpu(own.product):
            continue
        if able := labels(own.product):
            return Cause(
                AcceptedReason.UNSUPPORTED_GPU,
                f"{field}.product is {own.product}, and nodes have the full name of the product "
                "in their label nvidia.com/gpu.product: set it to that value, such as "
                f"{_listed(able)}",
            )
    return None


def _listed(values: tuple[str, ...]) -> str:
    """At most four names, as in "a, b or c"."""
    *first, last = values[:4]
    return f"{', '.join(first)} or {last}" if first else last


def claims(model: SpeculativeModel, _: Images) -> Cause | None:
    """GPUs come from resource claims or from a count: both together request them twice."""
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
    """A server can be started on the devices and ranks of the spec."""
    try:
        backends.of(model).servers(model)
    except RankError as error:
        return Cause(AcceptedReason.INVALID_DEVICES, str(error))
    return None
