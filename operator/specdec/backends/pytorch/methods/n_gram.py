"""Method NGram: draft tokens are what followed an earlier occurrence of the last n-gram."""

from typing import Any

from typing_extensions import override

from specdec.api.methods.n_gram import NGram
from specdec.api.model import SpeculativeModel
from specdec.backends.pytorch.generations import Generation
from specdec.backends.pytorch.methods.definition import LlmApiMethod


class NGramMethod(LlmApiMethod):
    """Every key is written: the defaults of releases differ, and some mix texts of requests."""

    @override
    def settings(self, model: SpeculativeModel, generation: Generation) -> dict[str, Any]:
        own = model.spec.speculation.n_gram or NGram()
        return {
            "max_matching_ngram_size": own.max_matching_size,
            "is_keep_all": own.keep_all,
            "is_use_oldest": own.use_oldest,
            "is_public_pool": own.public_pool,
        }


METHOD = NGramMethod()
