"""Method Lookahead: the target drafts from n-grams that it generated itself (Fu et al., 2024)."""

from typing import Any

from typing_extensions import override

from specdec.api.methods.lookahead import Lookahead
from specdec.api.model import SpeculativeModel
from specdec.backends.methods.definition import MethodDefinition
from specdec.triton.plan import Parameters


def parameters(window_size: int, ngram_size: int, verification_set_size: int) -> Parameters:
    """What `config.pbtxt` of the target sets; the sizes are those that the engine is built for."""
    return (
        ("decoding_mode", "lookahead"),
        ("lookahead_window_size", str(window_size)),
        ("lookahead_ngram_size", str(ngram_size)),
        ("lookahead_verification_set_size", str(verification_set_size)),
    )


class LookaheadMethod(MethodDefinition):
    """The operator needs no block, because every size has a default; the CRD requires one."""

    build_mode = "lookahead_decoding"

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        """The longest input of one step beyond the first token.

        A step verifies G n-grams beside a window of W columns and N - 1 rows. W, N and G are the
        sizes of the block `Lookahead`.
        """
        sizes = _sizes(model)
        n = sizes.ngram_size
        first = 0 if n == 1 else n - 2
        return first + (sizes.window_size - 1 + sizes.verification_set_size) * (n - 1)

    @override
    def built_in(self, model: SpeculativeModel) -> dict[str, Any]:
        return {"lookahead": _sizes(model).model_dump(by_alias=True)}

    @override
    def parameters(self, model: SpeculativeModel) -> Parameters:
        sizes = _sizes(model)
        return parameters(sizes.window_size, sizes.ngram_size, sizes.verification_set_size)


def _sizes(model: SpeculativeModel) -> Lookahead:
    return model.spec.speculation.lookahead or Lookahead()


METHOD = LookaheadMethod()
