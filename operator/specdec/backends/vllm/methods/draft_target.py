"""Method DraftTarget: a draft model beside the target, in the same processes."""

from typing_extensions import override

from specdec.api.model import SpeculativeModel
from specdec.backends.vllm.methods.definition import VllmMethod


class DraftTargetMethod(VllmMethod):
    """Both models have the same GPUs and the same tensor parallelism."""

    spelling = "draft_model"
    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft and maxDraftTokens"

    @override
    def slots(self, model: SpeculativeModel) -> int:
        return 1


METHOD = DraftTargetMethod()
