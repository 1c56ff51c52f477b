"""Recommend a draft length, or state between which lengths no difference was measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client.load.report import Interval, Level

_BASELINE = Interval(100.0, 100.0, 100.0)
# Bounds that differ by less than this share overlap: means have rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Choice:
    """The result of a comparison.

    Attributes:
        recommended: the draft length of the fastest arm, 0 for the baseline; None if that arm uses
            the server's default, or if there is no fastest arm.
        undecided: arms whose intervals overlap, the fastest first.
    """

    recommended: int | None = None
    undecided: tuple[int | None, ...] = ()


def choose(levels: Sequence[Level]) -> Choice:
    """Compare the arms and the baseline by the geometric mean of their speed over the levels.

    The bounds of a mean's interval are the means of the levels' bounds. The interval is at least
    as wide as one computed for levels with independent errors. An arm is recommended only if its
    interval overlaps with no other.
    """
    measured: dict[int | None, list[Interval]] = {}
    for level in levels:
        for arm in level.speculative:
            if arm.speedup_percent is not None:
                measured.setdefault(arm.draft_tokens, []).append(arm.speedup_percent)
    if not measured:
        return Choice()
    speeds = {0: _BASELINE, **{length: _mean(speed) for length, speed in measured.items()}}
    order = sorted(speeds, key=lambda length: speeds[length].value, reverse=True)
    bound = speeds[order[0]].low * (1 - _ROUNDING)
    close = [length for length in order[1:] if speeds[length].high >= bound]
    return Choice(undecided=(order[0], *close)) if close else Choice(recommended=order[0])


def _mean(intervals: Sequence[Interval]) -> Interval:
    def mean(values: Sequence[float]) -> float:
        # 0 has no logarithm.
        if min(values) <= 0:
            return 0.0
        return math.exp(sum(map(math.log, values)) / len(values))

    return Interval(
        mean([interval.value for interval in intervals]),
        mean([interval.low for interval in intervals]),
        mean([interval.high for interval in intervals]),
    )
