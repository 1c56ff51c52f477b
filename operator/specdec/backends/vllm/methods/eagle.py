"""Method Eagle: EAGLE-1 heads draft from the hidden states of the target's last layer."""

from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.finding import Finding
from specdec.backends.methods import heads
from specdec.backends.vllm.methods.definition import VllmMethod


class EagleMethod(VllmMethod):
    """The heads are one decoder layer, and draft a chain."""

    spelling = "eagle"
    needs_block = True
    head_cache_layers = 1
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.checkpoint to EAGLE heads of the target"

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        yield from heads.fit(model, facts).findings


METHOD = EagleMethod()
