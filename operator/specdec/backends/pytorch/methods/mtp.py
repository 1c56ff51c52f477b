"""Method MTP: layers of the target's own checkpoint predict several tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.finding import Finding
from specdec.backends.methods import prediction_layers
from specdec.backends.pytorch.generations import Generation
from specdec.backends.pytorch.methods.definition import LlmApiMethod, suffix_matching


class MtpMethod(LlmApiMethod):
    """The draft length may exceed the number of layers: a layer may be applied several times."""

    head_cache_layers = 1

    @override
    def settings(self, model: SpeculativeModel, generation: Generation) -> dict[str, Any]:
        own = model.spec.speculation.mtp
        return suffix_matching(own.suffix_matching) if own else {}

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        yield from prediction_layers.findings(model, facts)


METHOD = MtpMethod()
