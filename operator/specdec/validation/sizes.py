"""Rules on sizes that contradict each other only at run time."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import invalid

_SINK = "sink_token_length"


def sink(model: SpeculativeModel, _: Images) -> Cause | None:
    """Attention sinks need attention over a context that is not paged."""
    if _SINK not in model.spec.runtime.parameters:
        return None
    paged = [role for role, spec in model.models.items() if spec.engine.paged_context_fmha]
    if not paged:
        return None
    return invalid(
        f"spec.runtime.parameters has {_SINK}, and paged context attention of the {paged[0]} "
        "knows no sinks: remove it, or set engine.pagedContextFmha and kvCache.reuse to false"
    )
