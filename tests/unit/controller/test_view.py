"""Views: what a list and a watch show of one kind, and when a watch loses events."""

from typing import Any

import pytest

from specdec.api import names
from specdec.controller.view import View

Json = dict[str, Any]
MODEL, JOB = "specdec.dev/model", "batch.kubernetes.io/job-name"


def pod(name: str, version: int, uid: str = "", **labels: str) -> Json:
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}"}
    meta["resourceVersion"] = str(version)
    return {"metadata": {**meta, "labels": labels}, "status": {"version": version}}


def test_objects_are_selected_by_labels_and_namespace() -> None:
    view = View("v1", "Pod")
    view.put(pod("a", 1, **{MODEL: "pair", "role": "server"}))
    view.put(pod("b", 2, **{JOB: "build"}))
    view.put(pod("c", 3, **{MODEL: "pair-2", "models.specdec.dev/pair": ""}))
    for selector, expected in (
        (f"{MODEL}=pair", ["a"]),
        (f"{MODEL}", ["a", "c"]),
        (f"role=server,{MODEL}=pair", ["a"]),
        (f"role=client,{MODEL}=pair", []),
        (f"{JOB} in (build,other)", ["b"]),
        (f"{MODEL} in (pair,pair-2),models.specdec.dev/pair", ["c"]),
        ("role=server", ["a"]),
        (f"{MODEL}=none", []),
        ("", ["a", "b", "c"]),
    ):
        items = view.select("ns", selector)
        assert [item["metadata"]["name"] for item in items] == expected, selector
        assert all((item["apiVersion"], item["kind"]) == ("v1", "Pod") for item in items)
        assert view.select("other", selector) == []


def test_an_older_version_never_replaces_a_newer_one() -> None:
    view = View("v1", "Pod")
    assert view.put(pod("a", 5, **{MODEL: "pair"})) is not None
    assert view.put(pod("a", 5)) is None
    assert view.put(pod("a", 4)) is None
    old, new = view.put(pod("a", 6)) or (None, None)
    assert old is not None
    assert new is not None
    assert view.select("ns", f"{MODEL}=pair") == []
    assert view.remove(pod("a", 5, uid="predecessor")) is None
    assert view.remove(pod("a", 7)) is not None
    assert view.remove(pod("a", 7)) is None


def test_a_list_brings_deletions_and_keeps_what_is_newer_than_it() -> None:
    view = View("v1", "Pod")
    for item in (pod("deleted", 1), pod("same", 2), pod("changed", 3), pod("own", 9)):
        view.put(item)
    changes = view.replace([pod("same", 2), pod("changed", 4)], "5")
    deleted = [old["metadata"]["name"] for old, new in changes if old and new is None]
    changed = [new["metadata"]["name"] for _, new in changes if new]
    assert (deleted, changed) == (["deleted"], ["changed"])
    # The operator has created this one since the list.
    assert view.get(("ns", "own")) is not None


def test_own_deletion_is_seen_before_its_event() -> None:
    view = View("v1", "Pod")
    view.put(pod("a", 1))
    view.mark_deleted(pod("a", 1), exists=True)
    live = view.get(("ns", "a"))
    assert live is not None
    assert live["metadata"]["deletionTimestamp"]
    view.mark_deleted(pod("a", 1), exists=False)
    assert view.get(("ns", "a")) is None


def test_lost_events_show_in_two_comparisons() -> None:
    view = View("v1", "Pod")
    view.put(pod("a", 1))
    view.put(pod("ghost", 2))
    listed = [pod("a", 3)["metadata"], pod("new", 4)["metadata"]]
    assert view.compare(listed) == []
    assert sorted(view.compare(listed)) == ["ns/a", "ns/ghost", "ns/new"]
    view.put(pod("a", 3))
    view.put(pod("new", 4))
    view.remove(pod("ghost", 5))
    assert view.compare(listed) == []


def test_a_constantly_changing_object_is_not_lost() -> None:
    view = View("v1", "Pod")
    for number in range(1, 20):
        view.put(pod("a", 2 * number))
        assert view.compare([pod("a", 2 * number + 1)["metadata"]]) == []


def test_names_of_managers_are_kept_without_their_fields() -> None:
    view, item = View("v1", "Pod"), pod("a", 1)
    entry = {"manager": "specdec", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    item["metadata"]["managedFields"] = [entry]
    view.put(item)
    live = view.get(("ns", "a"))
    assert live is not None
    kept = {"manager": "specdec", "operation": "Update"}
    assert live["metadata"]["managedFields"] == [kept]


def deployment(version: int, **meta: Any) -> Json:
    body = pod("pair", version, **{MODEL: "pair", names.MANAGED_BY: names.MANAGER})
    return {**body, "metadata": {**body["metadata"], **meta}}


def test_object_that_leaves_the_view_is_in_doubt_until_it_is_read() -> None:
    name, selector = ("ns", "pair"), f"{MODEL}=pair"
    view = View("apps/v1", "Deployment")
    view.put(deployment(1))
    view.remove(deployment(2))
    assert view.select_doubts("ns", selector) == [name]
    assert view.select_doubts("other", selector) == []
    unlabelled = deployment(2, labels={MODEL: "pair"})
    view.settle(name, unlabelled)
    assert (view.in_doubt(name), view.get(name)) == (True, None)
    view.settle(name, None)
    assert not view.in_doubt(name)

    view.put(deployment(3))
    view.remove(deployment(4))
    view.settle(name, deployment(5))
    assert not view.in_doubt(name)
    assert (view.get(name) or {})["status"] == {"version": 5}


def test_newer_state_ends_a_doubt_and_is_not_lost_to_an_older_read() -> None:
    name, view = ("ns", "pair"), View("apps/v1", "Deployment")
    view.put(deployment(1))
    view.remove(deployment(2))
    view.put(deployment(3, uid="next"))
    view.settle(name, None)
    assert (view.get(name) or {})["metadata"]["uid"] == "next"


def test_only_objects_that_may_have_lost_their_labels_are_in_doubt() -> None:
    pods = View("v1", "Pod")
    pods.put(pod("pair", 1))
    pods.remove(pod("pair", 2))
    assert not pods.in_doubt(("ns", "pair"))
    view = View("apps/v1", "Deployment")
    view.put(deployment(1, deletionTimestamp="2026-01-02T03:04:05Z"))
    view.remove(deployment(2))
    assert not view.in_doubt(("ns", "pair"))
    view.put(deployment(3))
    view.remove(deployment(4))
    view.forget_doubts(("ns", "another"))
    assert view.in_doubt(("ns", "pair"))
    view.forget_doubts(("ns", "pair"))
    assert not view.in_doubt(("ns", "pair"))


@pytest.mark.parametrize("exists", [True, False])
def test_late_event_does_not_take_back_our_deletion(exists: bool) -> None:
    view = View("apps/v1", "Deployment")
    view.put(deployment(1))
    view.mark_deleted(deployment(1), exists=exists)
    view.put(deployment(2))
    assert "deletionTimestamp" in (view.get(("ns", "pair")) or {})["metadata"]
    view.put(deployment(4, uid="next"))
    assert "deletionTimestamp" not in (view.get(("ns", "pair")) or {})["metadata"]
