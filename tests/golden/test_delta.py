"""A delta turns its base into the tree; it fails with a base that it does not fit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.delta import StaleError, apply, delta, identities
from golden.documents import compact
from support.golden_cases import CASES, generated
from support.published_layouts import parse

TEXT = st.sampled_from(["a", "b", "a#2", "--flag", "--flag=1", "x.y", '["a"]', "", "1"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 3), TEXT)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(TEXT, st.sampled_from(["name", "type"])), inner, max_size=4),
    ),
    max_leaves=20,
)
ENV: list[Any] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


@given(base=TREES, tree=TREES)
def test_a_base_and_a_delta_make_the_tree(base: Any, tree: Any) -> None:
    change = delta(base, tree)
    assert repr_(apply(base, change)) == repr_(tree)
    assert (change == {}) == (repr_(base) == repr_(tree))


def repr_(tree: Any) -> str:
    """Return a text that depends on types, and on the order of lists but not of maps."""
    if isinstance(tree, dict):
        return f"{{{sorted((key, repr_(value)) for key, value in tree.items())}}}"
    return f"[{[repr_(item) for item in tree]}]" if isinstance(tree, list) else repr(tree)


def test_an_item_goes_by_its_name_and_its_neighbour() -> None:
    more = [ENV[0], {"name": "C", "value": "3"}, {"name": "B", "value": "4"}]
    assert delta({"env": ENV * 1 + LONG}, {"env": more + LONG}) == {
        "set": {"env[B].value": "4"},
        "insert": {"env": [{"after": "A", "items": [{"name": "C", "value": "3"}]}]},
    }


LONG: list[Any] = [{"name": f"L{number}", "value": "x" * 40} for number in range(9)]


def test_a_delta_does_not_change_when_the_base_changes_elsewhere() -> None:
    base = {"env": ENV + LONG, "replicas": 1}
    tree = {"env": [*ENV, {"name": "C"}, *LONG], "replicas": 1}
    other = {"env": [{"name": "NEW"}, *ENV, *LONG], "replicas": 2}
    change = delta(base, tree)
    made = apply(other, change)
    assert identities(made["env"])[:4] == ["NEW", "A", "B", "C"]
    assert delta(other, made) == change


@pytest.mark.parametrize(
    "change",
    [
        {"set": {"env[Z].value": "1"}},
        {"remove": ["env[Z]"]},
        {"add": {"resources": {"cpu": 1}}},
        {"insert": {"args": [{"after": None, "items": ["x"]}]}},
        {"insert": {"env": [{"after": "Z", "items": ["x"]}]}},
    ],
)
def test_a_delta_of_what_the_base_lacks_is_refused(change: Any) -> None:
    with pytest.raises(StaleError, match="the base lacks"):
        apply({"env": ENV}, change)


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_by_statement_is_the_same_configuration(case: str) -> None:
    for path, text in generated(case).repository.items():
        if path.endswith(".pbtxt"):
            lines = compact(text)
            assert parse("\n".join(lines)) == parse(text)
            assert "".join("".join(lines).split()) == "".join(text.split())
            assert len(set(identities(lines))) == len(lines)
