"""Whether a target has layers that predict several tokens, for method MTP."""

from collections.abc import Iterator, Mapping

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.matrix import support
from specdec.api.model import Method, SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding


def findings(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Iterator[Finding]:
    """A target whose configuration states no such layers."""
    target = facts.get("target", NO_FACTS)
    if target.architecture is not None and not target.next_token_layers:
        yield Finding(
            CompatibilityReason.MTP_LAYERS_MISSING,
            "the target's config.json has no num_nextn_predict_layers, so its checkpoint has "
            "no layers for method MTP: choose a target with such layers, as DeepSeek-R1"
            f"{_other_methods(model, target.architecture)}",
            "heads",
            "target",
        )


def _other_methods(model: SpeculativeModel, architecture: str) -> str:
    """The end of a sentence: methods for a target without prediction layers; may be empty."""
    row = support(model.spec.runtime.backend)
    if architecture not in row.architectures:
        return ""
    heads = architecture in row.method_architectures[Method.EAGLE3]
    return f", or method {'Eagle3 or NGram' if heads else 'NGram'}"
