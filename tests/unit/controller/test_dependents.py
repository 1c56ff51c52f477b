"""Which resources are requeued when another one changes."""

from typing import Any

import pytest

from specdec.controller.dependents import Dependents


def body(name: str | None) -> dict[str, Any]:
    split = {"modelRef": {"name": name}, "percent": 10} if name else None
    return {"spec": {"networking": {"gateway": {"parentRefs": [], "split": split}}}}


def test_resource_depends_on_split_target_in_same_namespace() -> None:
    dependents = Dependents()
    dependents.update(("one", "a"), body("next"))
    dependents.update(("one", "b"), body("next"))
    dependents.update(("two", "a"), body("next"))
    assert dependents.of(("one", "next")) == [("one", "a"), ("one", "b")]
    assert dependents.of(("two", "next")) == [("two", "a")]
    assert dependents.of(("one", "a")) == []


def test_resource_depends_on_the_baseline_of_its_benchmark() -> None:
    dependents = Dependents()
    baseline = {"modelRef": {"name": "plain"}}
    dependents.update(("one", "a"), {"spec": {"benchmark": {"baseline": baseline}}})
    both = body("next") | {}
    both["spec"]["benchmark"] = {"baseline": baseline}
    dependents.update(("one", "b"), both)
    assert dependents.of(("one", "plain")) == [("one", "a"), ("one", "b")]
    assert dependents.of(("one", "next")) == [("one", "b")]


def test_dependency_ends_with_another_target_no_target_or_deletion() -> None:
    dependents = Dependents()
    key, target = ("one", "a"), ("one", "next")
    dependents.update(key, body("next"))
    dependents.update(key, body("other"))
    assert dependents.of(target) == []
    assert dependents.of(("one", "other")) == [key]
    dependents.update(key, body(None))
    assert dependents.of(("one", "other")) == []
    dependents.update(key, body("next"))
    dependents.update(key, body("next"), deleted=True)
    assert dependents.of(target) == []


@pytest.mark.parametrize(
    "spec", [None, {}, {"networking": "none"}, {"networking": {"gateway": []}}]
)
def test_invalid_spec_has_no_split_target(spec: Any) -> None:
    dependents = Dependents()
    dependents.update(("one", "a"), {"spec": spec})
    assert dependents.of(("one", "next")) == []
