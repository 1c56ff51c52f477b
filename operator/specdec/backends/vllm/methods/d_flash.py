"""Method DFlash: a draft that reads hidden states of the target proposes a block in one step."""

from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.finding import Finding
from specdec.backends.methods import block_draft
from specdec.backends.vllm.methods.definition import VllmMethod


class DFlashMethod(VllmMethod):
    """The draft has the embedding and the output projection of the target."""

    spelling = "dflash"
    needs_block = True
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.checkpoint to a DFlash draft of the target"

    @override
    def slots(self, model: SpeculativeModel) -> int:
        return self.max_draft_len(model) - 1

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        yield from block_draft.findings(model, facts, self.max_draft_len(model), "vLLM")


METHOD = DFlashMethod()
