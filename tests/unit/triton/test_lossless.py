"""Greedy answers of the BLS over the Reference engine are the baseline's; the short campaign."""

from __future__ import annotations

from collections import Counter

from campaigns import equivalence

CASES = 150


def test_greedy_answers_equal_the_baseline() -> None:
    cases = list(equivalence.run(CASES))
    assert [case for case in cases if not case.equal] == []
    ends = Counter(end for case in cases for end in case.ends)
    # An option that never bites proves nothing.
    assert min(ends[end] for end in ("end token", "length limit", "stop word")) > CASES // 20
    assert sum(case.meter.accepted for case in cases) > CASES
    assert len({bool(case.values["stream"]) for case in cases}) == 2
