"""Method DraftTarget: a draft model beside the target, in the same processes."""

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.methods.draft_target import Acceptance, DraftTarget, Placement, Topology
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import ModelSpec
from specdec.backends.facts import Images
from specdec.backends.pytorch.methods.definition import LlmApiMethod
from specdec.backends.rule import invalid

_FIELD = "spec.speculation.draftTarget"


def options(model: SpeculativeModel, _: Images) -> Cause | None:
    """The draft shares everything with the target: only its source can be chosen."""
    own = model.spec.speculation.draft_target
    if own is None:
        return None
    if own.draft != ModelSpec(source=own.draft.source, limits=own.draft.limits):
        return invalid(
            f"{_FIELD}.draft has settings beside source and limits, and backend PyTorch runs the "
            "draft in the processes of the target: remove them"
        )
    plain = DraftTarget(draft=own.draft)
    if (own.topology, own.acceptance) != (Topology.SINGLE_SERVER, Acceptance.TOKENS):
        return invalid(
            f"{_FIELD} has topology {own.topology} and acceptance {own.acceptance}, and backend "
            "PyTorch has SingleServer and Tokens: remove both fields"
        )
    if own.gpu_placement is not Placement.SHARED or own != plain:
        return invalid(
            f"{_FIELD} has settings of the BLS or of separate GPUs, and backend PyTorch runs both "
            "models in one process without a BLS: remove all fields but draft"
        )
    return None


class DraftTargetMethod(LlmApiMethod):
    """Both models have the same GPUs and the same tensor parallelism."""

    rules = (options,)
    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft and maxDraftTokens"


METHOD = DraftTargetMethod()
