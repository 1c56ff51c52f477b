"""The draft tokens of one request, read from the outputs of vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from specdec_vllm.answers import Arrays

# The number of draft tokens, and then the numbers of verification steps that accepted 0, 1, 2 ...
# of them, by the number of the answer.
Rows = dict[str, list[int]]
# In the outputs of `counting_scheduler`.
FIELD = "specdec_drafts"


class Source(Enum):
    """Where the counts of a request come from."""

    ZERO = "no drafts"
    NATIVE = "vLLM's counts by request, from release 0.28 on"
    SCHEDULER = "the scheduler in `counting_scheduler`"
    UNKNOWN = "nowhere: answers have no counts"


class DraftCounts:
    """The counts of one request.

    Args:
        source: where they come from.
        count: the number of answers.
    """

    def __init__(self, source: Source, count: int) -> None:
        self._source, self._count = source, count
        self._rows: Rows = {}

    def note(self, output: Any) -> None:
        """Read a RequestOutput; later ones have later counts."""
        if self._source is Source.SCHEDULER:
            own: Mapping[str, Any] = output.kv_transfer_params or {}
            self._rows.update(own.get(FIELD, {}))
        elif self._source is Source.NATIVE:
            for completion in output.outputs:
                if metrics := completion.spec_decode_metrics:
                    row = [metrics.num_draft_tokens, *metrics.histogram]
                    self._rows[str(completion.index)] = row

    def outputs(self) -> Arrays:
        """The outputs with the totals of a finished request; empty if they are unknown."""
        if self._source is Source.UNKNOWN:
            return {}
        # vLLM itself reports nothing about an answer that ended at a stop text.
        if self._source is Source.NATIVE and len(self._rows) < self._count:
            return {}
        return _outputs(list(self._rows.values()))


def _outputs(rows: Sequence[Sequence[int]]) -> Arrays:
    width = max((len(row) for row in rows), default=2)
    total = np.zeros(width, np.int32)
    for row in rows:
        total[: len(row)] += np.array(row, np.int32)
    histogram = total[1:]
    accepted = int(histogram @ np.arange(len(histogram)))
    return {
        "total_draft_tokens": total[:1],
        "total_accepted_draft_tokens": np.array([accepted], np.int32),
        "acceptance_histogram": histogram,
    }
