"""Method PARD: a small model proposes all its tokens in one step."""

from typing import Any

from typing_extensions import override

from specdec.api.model import SpeculativeModel
from specdec.backends.vllm.methods.definition import VllmMethod


class PardMethod(VllmMethod):
    """vLLM has it as a draft model that drafts in parallel."""

    spelling = "draft_model"
    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft to a parallel draft model of the target"

    @override
    def equal_vocabulary(self, model: SpeculativeModel) -> bool:
        return True

    @override
    def slots(self, model: SpeculativeModel) -> int:
        return self.max_draft_len(model)

    @override
    def settings(self, model: SpeculativeModel) -> dict[str, Any]:
        return {"parallel_drafting": True}


METHOD = PardMethod()
