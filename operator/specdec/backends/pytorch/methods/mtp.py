"""Method MTP: layers of the target's own checkpoint predict several tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.matrix import support
from specdec.api.model import Method, SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding
from specdec.backends.pytorch.generations import Generation
from specdec.backends.pytorch.methods.definition import LlmApiMethod, suffix_matching


def _other_methods(architecture: str) -> str:
    """The end of a sentence: methods for a target without prediction layers; may be empty."""
    row = support("PyTorch")
    if architecture not in row.architectures:
        return ""
    heads = architecture in row.method_architectures[Method.EAGLE3]
    return f", or method {'Eagle3 or NGram' if heads else 'NGram'}"


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
        target = facts.get("target", NO_FACTS)
        if target.architecture is not None and not target.next_token_layers:
            yield Finding(
                CompatibilityReason.MTP_LAYERS_MISSING,
                "the target's config.json has no num_nextn_predict_layers, so its checkpoint has "
                "no layers for method MTP: choose a target with such layers, as DeepSeek-R1"
                f"{_other_methods(target.architecture)}",
                "heads",
                "target",
            )


METHOD = MtpMethod()
