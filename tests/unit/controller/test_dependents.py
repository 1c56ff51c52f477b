"""Who is looked at when another resource changes."""

from typing import Any

import pytest

from specdec.controller.dependents import Followers


def body(name: str | None) -> dict[str, Any]:
    split = {"modelRef": {"name": name}, "percent": 10} if name else None
    return {"spec": {"networking": {"gateway": {"parentRefs": [], "split": split}}}}


def test_a_resource_follows_whom_its_split_names_in_its_own_namespace() -> None:
    followers = Followers()
    followers.see(("one", "a"), body("next"))
    followers.see(("one", "b"), body("next"))
    followers.see(("two", "a"), body("next"))
    assert followers.of(("one", "next")) == [("one", "a"), ("one", "b")]
    assert followers.of(("two", "next")) == [("two", "a")]
    assert followers.of(("one", "a")) == []


def test_it_follows_no_more_when_it_names_another_or_nobody_or_is_gone() -> None:
    followers = Followers()
    key, named = ("one", "a"), ("one", "next")
    followers.see(key, body("next"))
    followers.see(key, body("other"))
    assert followers.of(named) == []
    assert followers.of(("one", "other")) == [key]
    followers.see(key, body(None))
    assert followers.of(("one", "other")) == []
    followers.see(key, body("next"))
    followers.see(key, body("next"), deleted=True)
    assert followers.of(named) == []


@pytest.mark.parametrize(
    "spec", [None, {}, {"networking": "none"}, {"networking": {"gateway": []}}]
)
def test_what_cannot_be_read_names_nobody(spec: Any) -> None:
    followers = Followers()
    followers.see(("one", "a"), {"spec": spec})
    assert followers.of(("one", "next")) == []
