"""Method Medusa: each head predicts the token of one position."""

from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding
from specdec.backends.methods import heads
from specdec.backends.vllm.methods.definition import VllmMethod


class MedusaMethod(VllmMethod):
    """vLLM makes as many heads as draft tokens, and those without weights draft at random."""

    spelling = "medusa"
    needs_block = True
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.heads to Medusa heads of the target"

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        fit = heads.fit(model, facts)
        yield from fit.findings
        most, length = fit.facts.num_heads, self.max_draft_len(model)
        if most is not None and length > most:
            yield heads.finding(
                CompatibilityReason.DRAFT_LENGTH_MISMATCH,
                f"the checkpoint has {most} heads, one for each draft token, and maxDraftTokens "
                f"is {length}: set it to {most} at most",
            )


METHOD = MedusaMethod()
