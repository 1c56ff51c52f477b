"""Draft lengths of servers that draft by themselves, so that no request can set one."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import invalid


def required(model: SpeculativeModel, _: Images) -> Cause | None:
    """A method that speculates has a draft length."""
    speculation = model.spec.speculation
    if not speculation.speculates or speculation.max_draft_tokens is not None:
        return None
    return invalid(
        f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
        "draft tokens of a step"
    )


def by_load(model: SpeculativeModel, _: Images) -> Cause | None:
    """A draft length by load is either a limit, or a schedule that starts with the full length."""
    speculation = model.spec.speculation
    own = speculation.draft_length_by_load
    if own is None:
        return None
    field = "spec.speculation.draftLengthByLoad"
    if (own.max_concurrency is None) == (not own.schedule):
        return invalid(f"{field} needs exactly one of maxConcurrency and schedule: set one")
    sizes = [step.batch_size for step in own.schedule]
    if sizes != sorted(set(sizes)):
        return invalid(
            f"{field}.schedule has the batch sizes {sizes}: list each once, in ascending order"
        )
    if own.schedule and own.schedule[0].draft_tokens != speculation.max_draft_tokens:
        return invalid(
            f"{field}.schedule starts with {own.schedule[0].draft_tokens} draft tokens, and "
            f"maxDraftTokens is {speculation.max_draft_tokens}: set the first step to "
            "maxDraftTokens"
        )
    return None
