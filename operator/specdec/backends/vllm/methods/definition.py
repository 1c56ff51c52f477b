"""The interface of a method that drafts inside vLLM, and the parts that methods share."""

from collections.abc import Iterator
from typing import Any, ClassVar

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts
from specdec.backends.methods.in_server import InServerMethod

# Of one range of a schedule: the first and the last number of requests, and the draft length.
Step = list[int]


class VllmMethod(InServerMethod):
    """A method of vLLM; by default the target decodes alone.

    Attributes:
        spelling: the value of `method` in `speculative_config`; empty if nothing drafts.
    """

    spelling: ClassVar[str] = ""

    def slots(self, model: SpeculativeModel) -> int:
        """Tokens of a step that each request takes for its draft, beside those that it decodes.

        Source: `max_num_new_slots_for_drafting` of vLLM's SpeculativeConfig.
        """
        del model
        return 0

    def settings(self, model: SpeculativeModel) -> dict[str, Any]:
        """Keys of `speculative_config` that only this method has."""
        del model
        return {}

    def speculative_config(self, model: SpeculativeModel, facts: Facts) -> dict[str, Any]:
        """The argument `speculative_config`; empty for a target that decodes alone."""
        if not self.spelling:
            return {}
        path = facts.checkpoints[self.drafts_with].path if self.drafts_with else ""
        schedule = list(_schedule(model))
        return {
            "method": self.spelling,
            **({"model": path} if path else {}),
            "num_speculative_tokens": self.max_draft_len(model),
            **self.settings(model),
            **({"num_speculative_tokens_per_batch_size": schedule} if schedule else {}),
        }


def _schedule(model: SpeculativeModel) -> Iterator[Step]:
    """The draft length by load, as ranges that begin with one request and have no gaps."""
    own = model.spec.speculation.draft_length_by_load
    if own is None:
        return
    most = model.spec.target.limits.max_batch_size
    if own.max_concurrency is not None:
        yield [1, own.max_concurrency, model.spec.speculation.max_draft_tokens or 0]
        if own.max_concurrency < most:
            yield [own.max_concurrency + 1, most, 0]
        return
    # The first step has the full length, which also fewer requests have.
    starts = [1, *(step.batch_size for step in own.schedule[1:])]
    ends = [*(start - 1 for start in starts[1:]), max(starts[-1], most)]
    for start, end, step in zip(starts, ends, own.schedule, strict=True):
        yield [start, end, step.draft_tokens]
