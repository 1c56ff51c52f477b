"""Orphaned Jobs and ConfigMaps get their owner back; children of a predecessor do not."""

from typing import Any

import pytest

from specdec.api import names
from specdec.cluster import Rejected
from specdec.controller.queue import Result
from specdec.controller.reconcile import Reconciler
from support.fake_cluster import FakeCluster
from unit.controller.decisions import IMAGES, KEY, Decided, child, resource


def owner(name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "specdec.dev/v1alpha1", "kind": "SpeculativeModel"} | {
        "name": name,
        "uid": uid,
    }


def owned(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    files = child("ConfigMap", "files", "publish")
    more = {"labels": {**files["metadata"]["labels"], **(labels or {})}}
    return {**files, "metadata": {**files["metadata"], **more, "ownerReferences": list(owners)}}


def shared() -> dict[str, Any]:
    files = owned(owner("other", "uid-other"))
    labels = {names.MANAGED_BY: names.MANAGER, names.ENGINE: "k", names.sharer("pair"): "true"}
    return {**files, "metadata": {**files["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("files", "manager"),
    [(owned(), "specdec-membership"), (shared(), "specdec-pair-membership")],
    ids=["own", "shared"],
)
async def test_orphan_gets_its_owner_back(files: dict[str, Any], manager: str) -> None:
    cluster = FakeCluster(resource(), files)
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    owners = cluster.objects["ConfigMap", "files"]["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["uid-pair"]
    assert cluster.managers == [manager]
    cluster.calls.clear()
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    assert cluster.writes() == []


@pytest.mark.parametrize(
    "files",
    [
        owned(owner("pair", "uid-pair")),
        owned(owner("pair", "uid-of-the-predecessor")),
    ],
    ids=["own", "of a predecessor"],
)
async def test_child_with_an_owner_of_that_name_is_left_alone(files: dict[str, Any]) -> None:
    cluster = FakeCluster(resource(), files)
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    assert ("apply", "ConfigMap", "files") not in cluster.calls


async def test_rejected_adoption_does_not_fail_the_reconcile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(resource(), owned())
    cluster.fail["apply", "ConfigMap"] = Rejected(403, "ConfigMap files", "a policy")
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == Result()
    assert "files stays without an owner" in caplog.text
