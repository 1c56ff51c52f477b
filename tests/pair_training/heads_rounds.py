"""How many draft tokens of heads a target accepts, replayed from one comparison of the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Agreement = NDArray[np.bool_]


def accepted_by_round(agrees: Agreement, length: int, new_tokens: int) -> list[int]:
    """Replay greedy speculation of one answer; returns the accepted draft tokens of each round.

    `agrees` is `[tokens, steps]`: whether the draft of a round that begins before this token of
    the answer is the target's choice, by its step. The target gives the first token without a
    draft, because heads read its states. Each round drafts in full, even if it goes beyond the
    answer's end.
    """
    rounds = []
    at = 1
    while at < new_tokens:
        accepted = int(np.cumprod(agrees[at, :length]).sum())
        rounds.append(accepted)
        at += accepted + 1
    return rounds


def acceptance(agrees: Sequence[Agreement], length: int, new_tokens: int) -> dict[str, Any]:
    """Acceptance over all answers, in percent: of drafted tokens, and by position in a draft."""
    rounds = np.asarray(
        [n for answer in agrees for n in accepted_by_round(answer, length, new_tokens)]
    )
    return {
        "draft_length": length,
        "accepted_percent": _percent(rounds.mean() / length),
        "accepted_percent_by_position": [
            _percent((rounds > position).mean()) for position in range(length)
        ],
        "tokens_per_target_step": round(float(rounds.mean()) + 1, 3),
    }


def _percent(share: float) -> float:
    return round(100 * float(share), 1)
