"""Method Eagle3: EAGLE-3 heads draft from hidden states of several layers of the target."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.finding import Finding
from specdec.backends.methods import heads
from specdec.backends.pytorch.generations import Generation
from specdec.backends.pytorch.methods.definition import LlmApiMethod, suffix_matching
from specdec.backends.rule import invalid


def tree(model: SpeculativeModel, _: Images) -> Cause | None:
    """A tree takes no penalties, and maxDraftTokens <= maxTotalTokens <= topK x maxDraftTokens."""
    own = model.spec.speculation.eagle3
    if own is None or own.dynamic_tree is None:
        return None
    if model.spec.speculation.penalties:
        return invalid(
            "spec.speculation has penalties and eagle3.dynamicTree, and TensorRT-LLM refuses "
            "penalties with a tree: remove one of them"
        )
    length, nodes = METHOD.max_draft_len(model), own.dynamic_tree.max_total_tokens
    most = own.dynamic_tree.top_k * length
    if length <= nodes <= most:
        return None
    return invalid(
        f"spec.speculation.eagle3.dynamicTree.maxTotalTokens is {nodes}, and a tree of depth "
        f"{length} with topK {own.dynamic_tree.top_k} has {length} to {most} nodes: set it to a "
        f"number from {length} to {most}"
    )


class Eagle3Method(LlmApiMethod):
    """The heads are one decoder layer, which shares the target's cache manager."""

    rules = (tree,)
    needs_block = True
    head_cache_layers = 1
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.checkpoint to EAGLE-3 heads of the target"

    @override
    def settings(self, model: SpeculativeModel, generation: Generation) -> dict[str, Any]:
        """The keys of a dynamic tree and of suffix matching; they are equal in all generations."""
        own = model.spec.speculation.eagle3
        if own is None:
            return {}
        grown = own.dynamic_tree
        tree_keys = (
            {
                "use_dynamic_tree": True,
                "dynamic_tree_max_topK": grown.top_k,
                "max_total_draft_tokens": grown.max_total_tokens,
            }
            if grown
            else {}
        )
        return {**tree_keys, **suffix_matching(own.suffix_matching)}

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        yield from heads.eagle3(model, facts)


METHOD = Eagle3Method()
