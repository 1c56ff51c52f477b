"""The rule for methods whose engine is built for `maxDraftTokens`."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import invalid


def required(model: SpeculativeModel, _: Images) -> Cause | None:
    """`maxDraftTokens` is set."""
    speculation = model.spec.speculation
    if speculation.max_draft_tokens is not None:
        return None
    return invalid(
        f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
        "draft tokens that the target's engine is built for"
    )
