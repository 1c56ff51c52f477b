"""Method PARD: a small model proposes all its tokens in one step."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding
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

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        """A draft without a token for the places that it fills: vLLM would not start."""
        draft = facts.get("draft", NO_FACTS)
        if draft.architecture is not None and draft.mask_token is None:
            yield Finding(
                CompatibilityReason.HEADS_METHOD_MISMATCH,
                "config.json of the draft has no pard_token, which vLLM needs for PARD: choose a "
                "parallel draft model, such as amd/PARD-Llama-3.2-1B, or method DraftTarget",
                "",
                "draft",
            )


METHOD = PardMethod()
