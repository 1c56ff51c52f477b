"""Draft lengths of methods whose engine is built for `maxDraftTokens`."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.api.speculation import LengthPolicy
from specdec.backends.facts import Images
from specdec.backends.rule import invalid
from specdec.triton.plan import DraftLengths


def required(model: SpeculativeModel, _: Images) -> Cause | None:
    """`maxDraftTokens` is set."""
    speculation = model.spec.speculation
    if speculation.max_draft_tokens is not None:
        return None
    return invalid(
        f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
        "draft tokens that the target's engine is built for"
    )


def built(model: SpeculativeModel) -> int:
    """The draft length (tokens) that the target's engine is built for."""
    return model.spec.speculation.max_draft_tokens or 0


def default(model: SpeculativeModel, longest: int) -> int:
    """The server's default draft length: the spec's, else as long as a request may ask for."""
    given = model.spec.speculation.draft_tokens
    return longest if given is None else given


def adaptive(model: SpeculativeModel, longest: int) -> DraftLengths | None:
    """Bounds within which the server chooses draft lengths; None where they are fixed.

    The bounds never exceed `longest`, the longest draft that a request may ask for.
    """
    policy = model.spec.speculation.length_policy
    if policy.type is not LengthPolicy.ADAPTIVE:
        return None
    most = longest if policy.max_length is None else min(policy.max_length, longest)
    return DraftLengths(min(policy.min_length, most), most)
