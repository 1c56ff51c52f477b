"""Method DraftTarget: a draft model beside the target, in the same processes."""

from typing_extensions import override

from specdec.backends.pytorch.methods.definition import LlmApiMethod


class DraftTargetMethod(LlmApiMethod):
    """Both models have the same GPUs and the same tensor parallelism."""

    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft and maxDraftTokens"


METHOD = DraftTargetMethod()
