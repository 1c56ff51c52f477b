"""Method NGram: the BLS drafts what followed an earlier occurrence of the last tokens.

The target verifies the drafts.
"""

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import override

from specdec.api.methods.n_gram import NGram
from specdec.api.model import SpeculativeModel
from specdec.backends.methods import lengths
from specdec.backends.methods.definition import MethodDefinition
from specdec.triton.layout import Server
from specdec.triton.plan import ModelPlan, RepositoryPlan


class NGramMethod(MethodDefinition):
    """The target's engine takes draft tokens from outside. There is no draft model."""

    rules = (lengths.required,)
    build_mode = "draft_tokens_external"
    # Every round is a new request, whose input is the whole sequence so far.
    resends_sequence = True

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        return lengths.built(model)

    @override
    def positions_beyond(self, model: SpeculativeModel) -> int:
        """Zero: the BLS never drafts beyond the last token of an answer."""
        del model
        return 0

    @override
    def draft_tokens(self, model: SpeculativeModel) -> int:
        return lengths.default(model, lengths.built(model))

    @override
    def configured(
        self,
        plan: RepositoryPlan,
        model: SpeculativeModel,
        server: Server,
        engines: Mapping[str, ModelPlan],
    ) -> RepositoryPlan:
        """As `MethodDefinition.configured`: adds the settings of the BLS."""
        del server, engines
        own = model.spec.speculation.n_gram or NGram()
        longest = lengths.built(model)
        return replace(
            plan,
            lookup_min_match=own.min_match,
            lookup_memory_megabytes=own.memory_megabytes or 0,
            draft_tokens=self.draft_tokens(model),
            max_draft_tokens=longest,
            adaptive=lengths.adaptive(model, longest),
            rows_per_call=plan.rows_per_call if plan.decoupled else 1,
        )


METHOD = NGramMethod()
