"""Method SuffixAutomaton: draft tokens follow the longest earlier match of the text's suffix."""

from typing import Any

from typing_extensions import override

from specdec.api.methods.suffix_automaton import SuffixAutomaton
from specdec.api.model import SpeculativeModel
from specdec.backends.pytorch.generations import Generation
from specdec.backends.pytorch.methods.definition import LlmApiMethod

_UNLIMITED = -1


class SuffixAutomatonMethod(LlmApiMethod):
    """It needs no draft model."""

    @override
    def settings(self, model: SpeculativeModel, generation: Generation) -> dict[str, Any]:
        own = model.spec.speculation.suffix_automaton or SuffixAutomaton()
        size = own.global_pool_size
        return {
            "max_matching_ngram_size": own.max_matching_size or _UNLIMITED,
            "enable_global_pool": own.global_pool,
            **({} if size is None else {"global_pool_size": size}),
        }


METHOD = SuffixAutomatonMethod()
