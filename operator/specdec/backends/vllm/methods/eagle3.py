"""Method Eagle3: EAGLE-3 heads draft from hidden states of several layers of the target."""

from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.finding import Finding
from specdec.backends.methods import heads
from specdec.backends.vllm.methods.definition import VllmMethod


class Eagle3Method(VllmMethod):
    """The heads are one decoder layer, whose cache has the blocks of the target's."""

    spelling = "eagle3"
    needs_block = True
    head_cache_layers = 1
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.checkpoint to EAGLE-3 heads of the target"

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        yield from heads.eagle3(model, facts)


METHOD = Eagle3Method()
