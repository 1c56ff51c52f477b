"""Method NGram: draft tokens are what followed an earlier occurrence of the last n-gram."""

from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.methods.n_gram import NGram
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import invalid
from specdec.backends.vllm.methods.definition import VllmMethod


def window(model: SpeculativeModel, _: Images) -> Cause | None:
    """The shortest n-gram is not longer than the longest one."""
    own = model.spec.speculation.n_gram or NGram()
    if own.min_match <= own.max_matching_size:
        return None
    return invalid(
        f"spec.speculation.nGram.minMatch is {own.min_match}, above maxMatchingSize "
        f"{own.max_matching_size}: lower minMatch, or raise maxMatchingSize"
    )


class NGramMethod(VllmMethod):
    """Both lengths are written: where only one is set, vLLM takes it for the other one too."""

    spelling = "ngram"
    rules = (window,)

    @override
    def settings(self, model: SpeculativeModel) -> dict[str, Any]:
        own = model.spec.speculation.n_gram or NGram()
        return {"prompt_lookup_min": own.min_match, "prompt_lookup_max": own.max_matching_size}


METHOD = NGramMethod()
