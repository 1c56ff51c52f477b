"""Running estimates that forget: acceptance rate, a mean, a curve."""

from __future__ import annotations

import math

# Share of the old evidence that a new observation leaves: of acceptance, and of seconds.
_KEPT = 0.97
_KEPT_SECONDS = 0.9
# Seconds after which evidence about acceptance counts a third: text changes its nature.
_FADE_SECONDS = 4.0
# Draft tokens' worth of evidence for the prior.
_PRIOR_WEIGHT = 4.0
_FIRST_GUESS = 0.7


class Acceptance:
    """Probability that the target accepts a draft token whose predecessors it accepted.

    A round that accepts n of g tokens is n successes, and one failure where n < g: the maximum
    likelihood estimate of a truncated geometric distribution is successes over trials.

    Args:
        prior: where this estimate starts from and what it falls back to.
    """

    def __init__(self, prior: Acceptance | None = None) -> None:
        self._prior = prior
        self._successes = self._trials = 0.0
        self._seen: float | None = None

    def add(self, drafted: int, accepted: int, now: float) -> None:
        """Take a round in."""
        kept = _KEPT * self._faded(now)
        self._successes = kept * self._successes + accepted
        self._trials = kept * self._trials + accepted + (accepted < drafted)
        self._seen = now

    def value(self, now: float) -> float:
        """The estimate, in (0, 1)."""
        guess = _FIRST_GUESS if self._prior is None else self._prior.value(now)
        kept = self._faded(now)
        successes = kept * self._successes + _PRIOR_WEIGHT * guess
        return successes / (kept * self._trials + _PRIOR_WEIGHT)

    def _faded(self, now: float) -> float:
        return 1.0 if self._seen is None else math.exp((self._seen - now) / _FADE_SECONDS)


class Mean:
    """A mean in which new values count more.

    Attributes:
        value: 0.0 before the first.
        count: values so far.
    """

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        """Take a value in."""
        self.count += 1
        share = max(1.0 / self.count, 1.0 - _KEPT_SECONDS)
        # One late wake-up is no cost of the engine: what is far off counts as three times.
        if self.count > 3:
            value = min(value, 3.0 * self.value)
        self.value += share * (value - self.value)


class Curve:
    """Seconds of a call by its draft tokens: a running mean of each length, straight in between.

    Args:
        through_zero: with one length known, the rest are in proportion to it instead of equal.

    Attributes:
        count: observations so far.
    """

    def __init__(self, *, through_zero: bool = False) -> None:
        self._through_zero = through_zero
        self._means: dict[int, Mean] = {}
        self.count = 0

    def knows(self, length: int) -> bool:
        """Whether this length was measured."""
        return length in self._means

    def add(self, length: int, seconds: float) -> None:
        """Take a call in."""
        self.count += 1
        self._means.setdefault(length, Mean()).add(seconds)

    def at(self, length: int) -> float:
        """Seconds expected for this many draft tokens; 0.0 when nothing is known."""
        if length in self._means:
            return self._means[length].value
        known = sorted(self._means)
        if len(known) < 2:
            return self._from_one(length, *known)
        above = next((i for i, one in enumerate(known) if one > length), len(known) - 1)
        low, high = known[max(above - 1, 0)], known[max(above, 1)]
        first, second = self._means[low].value, self._means[high].value
        slope = (second - first) / (high - low)
        if not low < length < high:
            # Beyond what was measured: longer calls never take less time, noise must not say so.
            slope = max(slope, 0.0)
        # A line through two lengths may fall under zero before it reaches length 0.
        return max(first + slope * (length - low), 0.0) or min(first, second)

    def _from_one(self, length: int, known: int = 0) -> float:
        if not self._means:
            return 0.0
        seconds = self._means[known].value
        return seconds * length / known if self._through_zero and known else seconds
