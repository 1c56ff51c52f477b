"""Which trees of draft tokens can be decoded, and the messages about invalid trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.backends.methods.tree import Ceilings, problem

SMALL = Ceilings(depth=3, nodes=6, non_leaves=2, exact=True)
GOOD = ((0,), (1,), (0, 0), (1, 0), (0, 0, 0))

BAD = [
    (((0,), ()), "has the path []"),
    (((-1,),), "has the path [-1]"),
    (((0,), (0, 1, 2)), "has [0, 1, 2] without its parent [0, 1]"),
    (((0,), (0,)), "has [0] twice"),
    (((0,), (0, 0)), "is 2 levels deep, and the engine drafts 3"),
    ((*GOOD, (0, 0, 0, 0)), "is 4 levels deep"),
    ((*GOOD, (2,), (3,)), "has 7 nodes, above maxDraftTokens 6"),
    (((0,), (1,), (2,), (0, 0), (1, 0), (2, 0)), "is 2 levels deep"),
]


def test_a_good_tree_is_accepted() -> None:
    assert problem(GOOD, SMALL) == ""


@pytest.mark.parametrize(("choices", "message"), BAD)
def test_a_bad_tree_is_refused(choices: tuple[tuple[int, ...], ...], message: str) -> None:
    assert message in problem(choices, SMALL)


def test_parents_on_one_level_are_counted() -> None:
    wide = ((0,), (1,), (2,), (0, 0), (1, 0), (2, 0))
    assert "has 3 nodes with children on one level" in problem(wide, Ceilings(2, 9, 2))
    assert problem(wide, Ceilings(2, 9, 3)) == ""
    assert problem(wide, Ceilings(2, 9)) == ""


@pytest.mark.parametrize(
    ("built", "fits"),
    [
        (Ceilings(4, 63, 10, exact=True), True),
        (Ceilings(5, 63, 10, exact=True), False),
        (Ceilings(4, 63, 9, exact=True), False),
        (Ceilings(5, 63), True),
        (Ceilings(3, 63), False),
    ],
)
def test_no_tree_is_the_release_s_default_tree(built: Ceilings, *, fits: bool) -> None:
    assert (problem((), built) == "") == fits


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1))
def test_a_tree_closed_under_parents_and_within_bounds_is_accepted(
    paths: list[tuple[int]],
) -> None:
    closed = {path[:n] for path in paths for n in range(1, len(path) + 1)}
    assert problem(tuple(sorted(closed)), Ceilings(4, len(closed))) == ""
    assert problem(tuple(sorted(closed)), Ceilings(4, len(closed) - 1)) != ""
