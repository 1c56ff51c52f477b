"""The recommended draft length, and the sentences for runs without a measured difference."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.client.load import Interval, Level
from specdec.client.load.choice import Choice, choose
from specdec.tools.bench.table import sentences
from unit.bench.fixed import arm, report


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, value, high = sorted(draw(st.tuples(*3 * [st.floats(1.0, 1000.0)])))
    return Interval(value, low, high)


def level(*speeds: Interval | None, clients: int = 1) -> Level:
    arms = tuple(arm(2 * n, 500.0, speedup_percent=s) for n, s in enumerate(speeds, 1))
    return Level(clients, arm(0, 1000.0), arms, None)


@given(st.lists(intervals(), min_size=1, max_size=4))
def test_recommended_interval_overlaps_with_no_other(speeds: list[Interval]) -> None:
    choice = choose([level(*speeds)])
    every = {0: Interval(100, 100, 100), **{2 * n: s for n, s in enumerate(speeds, 1)}}
    fastest = max(every.values(), key=lambda speed: speed.value)
    if choice.recommended is not None:
        assert choice.undecided == ()
        chosen = every.pop(choice.recommended)
        assert chosen.value == pytest.approx(fastest.value)
        assert all(other.high < chosen.low for other in every.values())
    else:
        first, *rest = choice.undecided
        assert rest
        assert first is not None
        assert every[first].value == pytest.approx(fastest.value)
        bound = every[first].low * (1 - 1e-8)
        assert all(every[length or 0].high >= bound for length in rest)


@pytest.mark.parametrize("levels", [1, 2, 3, 7])
def test_speed_equal_to_the_baseline_is_not_recommended(levels: int) -> None:
    equal = level(Interval(100, 100, 100))
    choice = choose([equal] * levels)
    assert (choice.recommended, set(choice.undecided)) == (None, {0, 2})


def test_baseline_is_recommended_where_everything_is_slower() -> None:
    assert choose([level(Interval(80, 70, 90), Interval(95, 91, 99))]) == Choice(recommended=0)
    assert choose([level(Interval(98, 95, 101))]) == Choice(undecided=(0, 2))


def test_levels_are_combined_by_their_geometric_mean() -> None:
    fast, slow = Interval(200, 190, 210), Interval(50, 49, 51)
    both = [level(fast, Interval(120, 119, 121)), level(slow, Interval(120, 119, 121))]
    assert choose(both) == Choice(recommended=4)


def test_nothing_is_recommended_without_a_measurement() -> None:
    assert choose([]) == choose([level(None)]) == Choice()


def test_overlap_is_stated() -> None:
    for undecided, text in (
        ((4, 2), "4 draft tokens and 2 draft tokens"),
        ((0, 4, 2), "no speculation, 4 draft tokens and 2 draft tokens"),
        ((None, 0), "speculation and no speculation"),
    ):
        close = report(recommended_draft_tokens=None, undecided_draft_tokens=undecided)
        assert list(sentences(close))[-1] == (
            f"no recommendation: no difference was measured between {text}; raise --requests"
        )


def test_report_survives_json() -> None:
    before = replace(report(), undecided_draft_tokens=(0, 2), subject={"Target": "t"})
    assert type(before).from_json(before.as_json()) == before
