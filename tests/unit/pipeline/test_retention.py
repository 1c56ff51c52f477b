"""`spec.revisionHistoryLimit`: which revisions stay, and what the prune Job may delete."""

import json
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from specdec.pipeline.observed import Observed
from specdec.tools.dry_run.simulated_cluster import Json
from support.simulated_cluster import World, fetched, resource
from unit.status_schema import refusals

RESULT = {"prune": {"directories": 2, "deleted": 2, "bytes": 5_000_000}}


class Lab(World):
    """A resource with a revision history, and the other resources on its claim."""

    def __init__(self, limit: int | None) -> None:
        super().__init__(resource(revisionHistoryLimit=limit))
        self.revisions: frozenset[str] = frozenset()
        self.pruning = ""

    @override
    def observed(self) -> Observed:
        live = replace(super().observed(), pruning=self.pruning)
        if live.neighbours is None:
            return live
        return replace(live, neighbours=replace(live.neighbours, revisions=self.revisions))

    def roll(self, tokens: int) -> str:
        """Let a revision with this draft length serve, and return its name."""
        self.cr["spec"]["speculation"]["draftTokens"] = tokens
        self.step()
        for name in [n for c in ("publish", "verify") for n in self.named(c)]:
            if "status" not in self.jobs[name]:
                self.finish(name, {})
        self.step()
        self.serve()
        self.step()
        revision: str = self.cr["status"]["serving"]["revision"]
        return revision

    def history(self) -> list[str]:
        return [item["revision"] for item in self.cr["status"].get("history", [])]

    def unused(self) -> dict[str, list[str]]:
        by_kind: dict[str, list[str]] = self.cr["status"].get("unused", {})
        return by_kind

    def only(self) -> dict[str, list[str]]:
        """Return the directories that the prune Job may delete, by kind."""
        job = self.jobs[self.job("prune")]
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        names: dict[str, list[str]] = json.loads(command[command.index("--only") + 1])
        return names


def lab(limit: int | None) -> Lab:
    made = Lab(limit)
    made.settle()
    return made


def other(**status: Any) -> Json:
    """Return another resource on the same claim that is not in progress."""
    types = ("ModelsFetched", "EnginesReady", "RepositoryReady")
    conditions = [{"type": t, "status": "True", "reason": "Fetched"} for t in types]
    body = resource(storage={"existingClaim": "pair-models"})
    body["metadata"] |= {"name": "other", "uid": "uid-other"}
    return body | {"status": {"observedGeneration": 1, "conditions": conditions, **status}}


def test_without_the_field_nothing_is_recorded_or_deleted() -> None:
    world = lab(None)
    world.roll(2)
    assert not {"history", "unused"} & world.cr["status"].keys()
    assert world.named("prune") == []
    assert all(c["type"] != "VolumePruned" for c in world.cr["status"]["conditions"])


def test_history_has_the_revisions_that_served_newest_first() -> None:
    world = lab(2)
    first = world.cr["status"]["serving"]["revision"]
    second, third = world.roll(2), world.roll(3)
    assert world.history() == [third, second, first]
    entry = world.cr["status"]["history"][0]
    assert entry["checkpoints"] == ["a" * 64, "b" * 64]
    assert len(entry["engines"]) == 2
    assert world.named("prune") == []
    assert world.unused() == {}
    assert not list(refusals(world.cr["status"]))
    assert world.roll(2) == second
    assert world.history() == [second, third, first]


def test_job_deletes_what_left_the_history_once() -> None:
    world = lab(0)
    first = world.cr["status"]["serving"]["revision"]
    second = world.roll(2)
    assert world.unused() == {"repositories": [first]}
    assert not list(refusals(world.cr["status"]))
    world.step()
    assert world.only() == {"repositories": [first]}
    assert world.condition("VolumePruned")["status"] == "Unknown"
    assert world.condition("Ready")["status"] == "True"
    world.finish(world.job("prune"), RESULT)
    assert world.step().requeue_after == 1
    condition = world.condition("VolumePruned")
    assert (condition["status"], condition["reason"]) == ("True", "Pruned")
    assert condition["message"] == "deleted 2 directories of earlier revisions (5.0 MB)"
    assert (world.unused(), world.history()) == ({}, [second])
    jobs = world.named("prune")
    world.step()
    assert world.named("prune") == jobs, "a second Job would delete nothing"
    kept = world.condition("VolumePruned")
    assert kept["message"] == "the volume keeps 0 of at most 0 earlier revisions"
    world.step()
    assert world.condition("VolumePruned") == kept


def test_lost_status_write_repeats_nothing_harmful() -> None:
    world = lab(0)
    world.roll(2)
    world.step()
    world.finish(world.job("prune"), RESULT)
    before = json.loads(json.dumps(world.cr["status"]))
    world.step()
    world.cr["status"] = before
    world.step()
    assert world.unused() == {}


def test_failed_job_leaves_the_service_ready() -> None:
    world = lab(0)
    world.roll(2)
    world.step()
    world.fail(world.job("prune"), '{"error": {"reason": "VolumeUnusable", "message": "no"}}')
    world.step()
    condition = world.condition("VolumePruned")
    assert (condition["status"], condition["reason"]) == ("False", "PruneFailed")
    assert world.condition("Ready")["status"] == "True"
    assert world.unused(), "the names stay until they are deleted"


def test_job_beyond_its_deadline_has_the_remedy() -> None:
    world = lab(0)
    world.roll(2)
    world.step()
    world.fail(world.job("prune"), "", reason="DeadlineExceeded")
    world.step()
    condition = world.condition("VolumePruned")
    assert condition["reason"] == "PruneFailed"
    assert "3600 seconds: check the volume" in condition["message"]


def test_names_of_other_resources_stay() -> None:
    world = lab(0)
    first = world.cr["status"]["serving"]["revision"]
    world.others = [other(repository={"hash": first})]
    world.roll(2)
    world.step()
    assert world.named("prune") == []
    assert world.unused() == {}, "the last user deletes it"


def test_histories_of_other_resources_stay() -> None:
    world = lab(0)
    first = world.cr["status"]["serving"]["revision"]
    world.others = [other(history=[{"revision": first}])]
    world.roll(2)
    world.step()
    assert world.named("prune") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"storage": {"existingClaim": "pair-models"}}}, "PruneBlocked"),
        ({"status": {}}, "PruneWaits"),
        ({"status": {"observedGeneration": 1}}, "PruneWaits"),
        (
            {
                "status": {
                    "observedGeneration": 1,
                    "conditions": [
                        {"type": "Accepted", "status": "False", "reason": "InvalidSpec"}
                    ],
                }
            },
            "PruneBlocked",
        ),
    ],
)
def test_nothing_is_deleted_while_another_resource_is_not_settled(
    change: Json, reason: str
) -> None:
    world = lab(0)
    world.others = [other() | change]
    world.roll(2)
    world.step()
    assert world.named("prune") == []
    condition = world.condition("VolumePruned")
    assert condition["reason"] == reason
    assert "other" in condition["message"]
    assert world.condition("Ready")["status"] == "True"
    world.others = [other()]
    world.step()
    assert world.only()


def test_change_of_another_resource_cancels_the_job() -> None:
    world = lab(0)
    world.others = [other()]
    world.roll(2)
    world.step()
    assert world.only()
    world.others[0]["metadata"]["generation"] = 2
    world.step()
    assert world.named("prune") == []
    assert world.last is not None
    assert world.last.requeue_after is not None


def test_own_change_cancels_the_job() -> None:
    world = lab(0)
    world.roll(2)
    world.step()
    assert world.only()
    world.cr["spec"]["speculation"]["draftTokens"] = 3
    world.step()
    assert world.named("prune") == []


def test_live_pods_of_a_revision_keep_it() -> None:
    world = lab(0)
    first = world.cr["status"]["serving"]["revision"]
    world.revisions = frozenset({first[:16]})
    world.roll(2)
    world.step()
    assert world.named("prune") == []
    assert "no pod serves revision" in world.condition("VolumePruned")["message"]


def test_resource_does_not_use_the_volume_again_during_a_prune() -> None:
    world = Lab(0)
    world.step()
    world.bind()
    world.pruning = "pair-prune-1"
    world.step()
    assert world.named("fetch") == []
    message = world.condition("ModelsFetched")["message"]
    assert message == "waits until pod pair-prune-1 has deleted unused directories"
    world.pruning = ""
    world.step()
    assert world.named("fetch")


def test_settled_resource_does_not_wait_for_a_prune() -> None:
    world = lab(None)
    world.pruning = "pair-prune-1"
    world.step()
    assert world.condition("Ready")["status"] == "True"


def test_revision_that_never_served_is_deleted() -> None:
    world = lab(1)
    first = world.cr["status"]["serving"]["revision"]
    world.cr["spec"]["target"]["source"]["pvc"]["path"] = "wrong"
    world.step()
    result = fetched()
    result["models"]["target"]["digest"] = "c" * 64
    name = next(n for n in world.named("fetch") if "status" not in world.jobs[n])
    world.finish(name, result)
    world.step()
    world.cr["spec"]["target"]["source"]["pvc"]["path"] = "target"
    world.settle()
    assert world.history() == [first]
    world.step()
    assert "c" * 64 in {*world.unused().get("checkpoints", []), *_deleted(world)}


def _deleted(world: Lab) -> list[str]:
    return world.only().get("checkpoints", []) if world.named("prune") else []
