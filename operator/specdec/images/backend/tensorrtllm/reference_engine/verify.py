"""Acceptance of a drafted token by the two models' logits."""

from __future__ import annotations

import numpy as np

from .sampling import Sampling, accept_draw, draw, probabilities
from .weights import Floats


def accept_by_logits(
    rules: Sampling,
    target: Floats,
    draft: Floats,
    drafted: int,
    position: int,
    threshold: float | None,
) -> int:
    """Keep the drafted token or replace it, such that the result is a sample of the target.

    Modified rejection sampling (Leviathan et al. 2023, Chen et al. 2023): keep with probability
    min(1, p / q), else sample what the target has more of than the draft, max(p - q, 0).

    Args:
        target: [vocabulary] adjusted target logits at this position.
        draft: [vocabulary] adjusted logits that the drafted token was sampled from.
        threshold: in (0, 1], takes the place of the random number: the token is kept while
            p >= threshold * q. None keeps the target's distribution exactly.

    Returns:
        the token at `position`; it equals `drafted` where that was accepted.
    """
    p, q = probabilities(rules, target), probabilities(rules, draft)
    border = accept_draw(rules.seed, position) if threshold is None else threshold
    if p[drafted] > 0.0 and p[drafted] >= border * q[drafted]:
        return drafted
    rest = np.maximum(p - q, 0.0)
    # With a threshold, a token can be refused although the target gives it at least the draft's
    # probability.
    rest[drafted] = 0.0
    if rest.sum() <= 0.0:
        rest = p.copy()
        rest[drafted] = 0.0
    return draw(rules.seed, position, rest if rest.sum() > 0.0 else p)
