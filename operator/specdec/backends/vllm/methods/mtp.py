"""Method MTP: layers of the target's own checkpoint predict several tokens."""

from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding
from specdec.backends.methods import prediction_layers
from specdec.backends.vllm.methods.definition import VllmMethod


class MtpMethod(VllmMethod):
    """A draft may be longer than the number of layers: all of them are applied again."""

    spelling = "mtp"
    head_cache_layers = 1

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        """Also a draft length that leaves out some of the layers in its last turn."""
        yield from prediction_layers.findings(model, facts)
        layers, length = facts.get("target", NO_FACTS).next_token_layers, self.max_draft_len(model)
        if layers and length > layers and length % layers:
            yield Finding(
                CompatibilityReason.DRAFT_LENGTH_MISMATCH,
                f"the target has {layers} prediction layers, which vLLM applies one after "
                f"another, and maxDraftTokens is {length}: set it to {length // layers * layers}",
                "heads",
                "target",
            )


METHOD = MtpMethod()
