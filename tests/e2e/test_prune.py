"""`specdec prune` on a real claim: it deletes unused items, and services continue."""

import json

import pytest
from typer.testing import CliRunner

from e2e.world import SHARED, World, model
from specdec.tools.cli.app import app


def pruned(world: World, *options: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["prune", SHARED, "--json", *options])
    assert result.exit_code == 0, result.output
    items: list[dict[str, object]] = json.loads(result.stdout)["items"]
    return items


def test_earlier_revision_is_deleted_and_the_service_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
    # No other resource has these draft lengths: equal resources would share a repository.
    name = world.apply(model("pruned", speculation={"draftTokens": 7}))
    world.ready(name)
    earlier = world.get(name)["status"]["repository"]["hash"]
    world.patch(name, {"speculation": {"draftTokens": 6}})
    world.wait(
        lambda: world.get(name)["status"]["repository"]["hash"] != earlier,
        lambda: "no new repository",
    )
    world.ready(name)
    world.left(name, 1)
    repositories = world.folder(SHARED) / "repositories"
    listed = pruned(world)
    assert (earlier, False) in {(item["name"], item["used"]) for item in listed}
    assert (repositories / earlier).is_dir()

    used = {item["name"] for item in listed if item["used"]}
    deleted = {i["name"] for i in pruned(world, "--delete", "--older-than", "0s") if i["deleted"]}
    assert earlier in deleted
    assert used.isdisjoint(deleted)
    assert not (repositories / earlier).exists()
    assert all(item["used"] for item in pruned(world))
    assert world.text(name, "def f(", max_tokens=4)


def test_revision_that_left_the_history_is_deleted(world: World) -> None:
    # No other resource has this draft length.
    spec = model("limited", revisionHistoryLimit=0, speculation={"draftTokens": 5})
    name = world.apply(spec)
    world.ready(name)
    earlier = world.get(name)["status"]["repository"]["hash"]
    directory = world.folder(SHARED) / "repositories" / earlier
    assert directory.is_dir()
    world.patch(name, {"speculation": {"draftTokens": 1}})
    world.wait(
        lambda: not directory.exists(),
        lambda: f"{earlier} stays: {world.condition(name, 'VolumePruned')}",
    )
    world.wait(
        lambda: "unused" not in world.get(name)["status"],
        lambda: str(world.get(name)["status"]["unused"]),
    )
    status = world.get(name)["status"]
    assert [item["revision"] for item in status["history"]] == [status["repository"]["hash"]]
    assert world.unfinished(SHARED) == []
    assert world.text(name, "def f(", max_tokens=4)
