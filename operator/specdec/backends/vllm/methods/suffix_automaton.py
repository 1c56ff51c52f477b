"""Method SuffixAutomaton: draft tokens follow the longest earlier match of the text's suffix."""

from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.methods.suffix_automaton import SuffixAutomaton
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.backends.vllm.methods.definition import VllmMethod

# vLLM's own number of texts, if the spec has a pool without a size.
_POOL = 10_000
# vLLM's own depth of a tree, in tokens.
_DEPTH = 24


def package(model: SpeculativeModel, _: Images) -> Cause | None:
    """The image has a package that vLLM does not bring along."""
    if model.spec.runtime.image:
        return None
    return Cause(
        AcceptedReason.IMAGE_MISSING,
        "spec.speculation.method is SuffixAutomaton, for which vLLM needs the Python package "
        "arctic-inference 0.1.1, and the default images are not known to have it: set "
        "spec.runtime.image to an image with this package",
    )


class SuffixAutomatonMethod(VllmMethod):
    """vLLM calls it suffix decoding, and holds the suffixes in trees."""

    spelling = "suffix"
    rules = (package,)

    @override
    def settings(self, model: SpeculativeModel) -> dict[str, Any]:
        """Without a pool of the spec there is none: vLLM's would mix the texts of all clients.

        The depth of a tree limits a match together with its draft.
        """
        own = model.spec.speculation.suffix_automaton or SuffixAutomaton()
        length, longest = self.max_draft_len(model), own.max_matching_size
        return {
            "suffix_decoding_max_tree_depth": max(_DEPTH, 2 * length)
            if longest is None
            else longest + length,
            "suffix_decoding_max_cached_requests": (own.global_pool_size or _POOL)
            if own.global_pool
            else 0,
        }


METHOD = SuffixAutomatonMethod()
