"""A serving resource whose verification gets a result that the test chooses."""

import json
from typing import Any

from specdec.api.conditions import VERIFIED
from support.simulated_cluster import World, fetched, measured, resource

Json = dict[str, Any]


def serving(method: str = "DraftTarget", **spec: Any) -> World:
    """Return a serving resource whose verification Job, if there is one, was just created."""
    world = World(resource(method, **spec))
    serve(world)
    return world


def serve(world: World) -> None:
    """Let every Job succeed except those that measure: verification and benchmark."""
    for _ in range(8):
        world.step()
        if world.claim is None:
            world.bind()
        for name, job in list(world.jobs.items()):
            if "status" not in job and not measured(job):
                world.finish(name, fetched() if "-fetch-" in name else {})
        world.serve()
    world.step()


def result_of(world: World, **changed: Any) -> Json:
    """Return a good result of the verification Job, with these fields changed."""
    reasons: Json = measured(world.jobs[world.job("verify")])["verification"]
    return {"verification": {**reasons, **changed}}


def finish(world: World, **changed: Any) -> None:
    world.finish(world.job("verify"), result_of(world, **changed))
    world.step()


def reasons(world: World) -> dict[str, tuple[str, str]]:
    return {
        kind: (world.condition(kind)["status"], world.condition(kind)["reason"])
        for kind in map(str, VERIFIED)
    }


def plan(world: World) -> Json:
    job = world.jobs[world.job("verify")]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:4] == ["python", "-m", "specdec.jobs.verify", "--plan"]
    value: Json = json.loads(command[4])
    return value
