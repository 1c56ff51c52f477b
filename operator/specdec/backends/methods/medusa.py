"""Method Medusa: independent heads on the target draft a tree of tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.facts import Images
from specdec.backends.finding import Finding
from specdec.backends.methods import heads, lengths, tree
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.rule import invalid
from specdec.triton.plan import Parameters

_BUILT_IN = {"num_heads", "num_layers"}


def choices(model: SpeculativeModel, _: Images) -> Cause | None:
    """The tree of draft tokens fits the number of heads and of draft tokens."""
    own, nodes = model.spec.speculation.medusa, model.spec.speculation.max_draft_tokens or 0
    if own is None:
        return None
    problem = tree.problem(own.choices, tree.Ceilings(own.num_heads, nodes))
    return invalid(f"spec.speculation.medusa.choices {problem}") if problem else None


class MedusaMethod(MethodDefinition):
    """The tree's paths are a key of `config.pbtxt`; the engine holds only the tree's size."""

    rules = (lengths.required, choices)
    needs_block = True
    build_mode = "medusa"

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        return model.spec.speculation.max_draft_tokens or 0

    @override
    def built_in(self, model: SpeculativeModel) -> dict[str, Any]:
        own = model.spec.speculation.medusa
        return {"medusa": own.model_dump(by_alias=True, include=_BUILT_IN)} if own else {}

    @override
    def parameters(self, model: SpeculativeModel) -> Parameters:
        own = model.spec.speculation.medusa
        paths = tree.text(own.choices if own else ())
        return (("decoding_mode", "medusa"), ("medusa_choices", paths))

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        """As the base class; also compares `numHeads` and `numLayers` with the checkpoint."""
        fit, own = heads.fit(model, facts), model.spec.speculation.medusa
        yield from fit.findings
        count, layers = fit.facts.num_heads, fit.facts.layers
        if own is None:
            return
        if count is not None and own.num_heads > count:
            yield heads.finding(
                CompatibilityReason.HEADS_COUNT_MISMATCH,
                f"medusa.numHeads is {own.num_heads} and the checkpoint has {count} heads: set "
                f"medusa.numHeads to {count} or less",
            )
        if layers is not None and own.num_layers != layers:
            yield heads.finding(
                CompatibilityReason.HEADS_LAYERS_MISMATCH,
                f"medusa.numLayers is {own.num_layers} and the heads have {layers} layers each: "
                f"set medusa.numLayers to {layers}",
            )


METHOD = MedusaMethod()
