"""The tables of resources expand as written; a case that changes nothing is an error."""

from typing import Any

import pytest

from support import crd_cases

ROW: dict[str, Any] = {"name": "row", "base": "reference"}


def test_a_patch_adds_and_replaces_at_its_path() -> None:
    patch = {"spec.storage.size": "1Ti", "spec.serving.drain.timeoutSeconds": 5}
    body = crd_cases.expanded({**ROW, "patch": patch})
    plain = crd_cases.expanded(ROW)
    assert body["metadata"]["name"] == "row"
    assert body["spec"] == {
        **plain["spec"],
        "storage": {"size": "1Ti"},
        "serving": {"drain": {"timeoutSeconds": 5}},
    }


def test_a_removed_path_is_absent() -> None:
    assert "storage" not in crd_cases.expanded({**ROW, "remove": ["spec.storage"]})["spec"]


def test_a_case_builds_on_another_case() -> None:
    base = crd_cases.good_resource("routed-by-gateway")
    body = crd_cases.expanded({"name": "row", "base": "routed-by-gateway"})
    assert body["spec"] == base["spec"]


def test_a_case_changes_a_copy() -> None:
    crd_cases.good_resource("everything")["spec"].clear()
    assert crd_cases.good_resource("everything")["spec"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"patch": {"spec.storage.size": "10Gi"}}, "is 10Gi in the base"),
        ({"remove": ["spec.suspend"]}, "suspend"),
    ],
)
def test_a_change_that_changes_nothing_is_an_error(row: dict[str, Any], message: str) -> None:
    with pytest.raises((AssertionError, KeyError), match=message):
        crd_cases.expanded(ROW | row)
