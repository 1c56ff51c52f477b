"""Method Eagle: EAGLE-1 heads on the target draft a tree of tokens."""

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

_BUILT_IN = {"num_layers", "max_non_leaves_per_layer"}


def choices(model: SpeculativeModel, _: Images) -> Cause | None:
    """The tree of draft tokens fits the number of draft steps and of draft tokens."""
    own, nodes = model.spec.speculation.eagle, model.spec.speculation.max_draft_tokens or 0
    if own is None:
        return None
    built = tree.Ceilings(own.num_layers, nodes, own.max_non_leaves_per_layer, exact=True)
    problem = tree.problem(own.choices, built)
    return invalid(f"spec.speculation.eagle.choices {problem}") if problem else None


class EagleMethod(MethodDefinition):
    """The tree's paths are a key of `config.pbtxt`; the engine holds only the tree's size."""

    rules = (lengths.required, choices)
    needs_block = True
    build_mode = "eagle"
    # The drafter is one decoder layer with a cache of its own.
    head_cache_layers = 1

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        return model.spec.speculation.max_draft_tokens or 0

    @override
    def built_in(self, model: SpeculativeModel) -> dict[str, Any]:
        own = model.spec.speculation.eagle
        return {"eagle": own.model_dump(by_alias=True, include=_BUILT_IN)} if own else {}

    @override
    def parameters(self, model: SpeculativeModel) -> Parameters:
        own = model.spec.speculation.eagle
        paths = tree.text(own.choices if own else ())
        return (("decoding_mode", "eagle"), ("eagle_choices", paths))

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        fit = heads.fit(model, facts)
        yield from fit.findings
        layers = fit.facts.layers
        if layers not in (None, 1):
            yield heads.finding(
                CompatibilityReason.HEADS_LAYERS_MISMATCH,
                f"the EAGLE heads have {layers} decoder layers and EAGLE-1 has one: choose "
                "EAGLE-1 heads (eagle.numLayers is the number of draft steps, not of layers)",
            )


METHOD = EagleMethod()
