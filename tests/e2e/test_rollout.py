"""Rollouts under load: no request fails, and a broken revision receives no requests."""

import pytest

from campaigns import scale
from e2e.traffic import asking
from e2e.world import World
from specdec.api import names

CHANGES = 9


def test_new_draft_length_builds_nothing_and_loses_no_request(world: World, served: str) -> None:
    name, first = served, world.get(served)
    jobs = world.build_jobs()
    with asking(world, name) as seen:
        # A new draft length changes the repository, so the pod is replaced too.
        world.patch(name, {"speculation": {"draftTokens": 2}})
        second = world.ready(name)
        world.left(name, 1)
        seen.more(world)
    assert seen.failures == []
    assert len(seen.answers) == 4, seen.answers
    assert world.build_jobs() == jobs
    assert second["status"]["plan"]["draftTokens"] == 2
    assert second["status"]["repository"]["hash"] != first["status"]["repository"]["hash"]
    assert second["status"]["plan"]["engineKeys"] == first["status"]["plan"]["engineKeys"]


def test_broken_revision_is_reported_while_the_old_one_serves(world: World, served: str) -> None:
    name = served
    (old,) = world.pods(name)
    with asking(world, name) as seen:
        # With so little shared memory, the processes of the Python models cannot start.
        world.patch(name, {"serving": {"sharedMemory": "1Ki"}})
        # Before it reports this reason, the operator checks the volume once after the first crash.
        world.until(name, "Ready", "CrashLoop")
        condition = world.condition(name, "Available")
        assert condition["message"].endswith("; 1 of 1 pods serve requests")
        seen.more(world)
        world.patch(name, {"serving": {"sharedMemory": "256Mi"}})
        world.ready(name)
    assert seen.failures == []
    assert [pod["metadata"]["uid"] for pod in world.pods(name)] == [old["metadata"]["uid"]]


@pytest.mark.nightly
def test_scale_changes_under_load_are_followed_and_lose_no_request(
    world: World, served: str
) -> None:
    before = world.get(served)["metadata"]["generation"]
    with asking(world, served) as seen:
        last = scale.burst(world, served, 1, CHANGES)
        scale.settled(world, served, last)
        seen.more(world)
    assert last == 2
    assert seen.failures == []
    assert world.get(served)["metadata"]["generation"] == before + CHANGES
    writers = scale.spec_writers(world, served)
    assert any(writer.startswith("kubectl") for writer in writers)
    assert names.MANAGER not in writers
