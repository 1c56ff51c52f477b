"""Rules on GPUs and ranks."""

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.backends.rule import invalid
from specdec.desired.pod import GPU
from specdec.triton.layout import RankError


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
        backends.of(model).ranks(model)
    except RankError as error:
        return Cause(AcceptedReason.INVALID_DEVICES, str(error))
    return None
