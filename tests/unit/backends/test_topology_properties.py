"""Properties of a TensorRT resource after every change of topology and in any order of events."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.api import names
from specdec.api.conditions import OPTIONAL, Type
from support.effort import examples
from support.simulated_cluster import FACTS, World
from unit.pipeline.tensorrt import Json, put, tensorrt

pytestmark = pytest.mark.slow
SHAPES = ("single", "two", "nodes")
HEADS = {"method": "Medusa", "numHeads": 4, "layers": 1}
STEPS = (*SHAPES, "medusa", "prebuilt", "built", "more", "fewer", "product", "suspend", "resume")
EVENTS = st.lists(st.sampled_from([*STEPS, "bind", "finish", "fail", "serve"]), max_size=16)


def shaped(cr: Json, shape: str) -> Json:
    """Change to a pair in one or two servers, to Medusa heads, or to a target over two nodes."""
    method = {"medusa": "Medusa", "nodes": "None"}.get(shape, "DraftTarget")
    cr["spec"]["speculation"] = tensorrt(method)["spec"]["speculation"]
    if shape == "two":
        put(cr, "speculation.draftTarget.topology", "TwoServers")
        put(cr, "speculation.draftTarget.placement", "Dedicated")
    split = {"tensor": 8, "pipeline": 2} if shape == "nodes" else {"tensor": 2}
    put(cr, "target.parallelism", split)
    put(cr, "storage.accessMode", "ReadWriteMany")
    return put(cr, "serving.nodesPerReplica", 2 if shape == "nodes" else 1)


def fetched(world: World) -> Json:
    """Return the fetch Job's result for every source of the spec."""
    wide = FACTS | {"heads": 64, "kvHeads": 16}
    facts: Json = {"target": wide, "draft": wide, "heads": HEADS}
    models = {
        role: {
            "digest": names.digest(role),
            "revision": "",
            "bytes": 1_000_000,
            "facts": facts.get(role, {}),
        }
        for role in world.model().sources
    }
    return {"models": models, "engines": []}


def result(world: World, job: str) -> Json:
    return fetched(world) if "-fetch-" in job else {}


def happen(world: World, event: str) -> None:
    spec = world.spec
    if event in (*SHAPES, "medusa"):
        shaped(world.cr, event)
    elif event == "prebuilt":
        put(world.cr, "target.engine", {"prebuilt": {"pvc": {"claimName": "e", "path": "e"}}})
    elif event == "built":
        spec["target"].pop("engine", None)
    elif event in ("more", "fewer"):
        put(world.cr, "serving.replicas", 2 if event == "more" else 1)
    elif event == "product":
        put(world.cr, "gpu.product", "NVIDIA-H200")
    elif event in ("suspend", "resume"):
        spec["suspend"] = event == "suspend"
    else:
        around(world, event)


def around(world: World, event: str) -> None:
    """Apply an event of the cluster: bind, serve, finish or fail."""
    waiting = [name for name, job in world.jobs.items() if "status" not in job]
    if event == "bind":
        world.bind()
    elif event == "serve":
        world.serve()
    elif event == "finish" and waiting:
        world.finish(waiting[0], result(world, waiting[0]))
    elif event == "fail" and waiting:
        world.fail(waiting[0], "failed")


def sound(world: World, decision: Any) -> None:
    applied = [(o["kind"], o["metadata"]["name"]) for o in decision.apply]
    assert len(set(applied)) == len(applied)
    assert {(ref.kind, ref.name) for ref in decision.delete}.isdisjoint(applied)
    assert [c.type for c in decision.conditions] == [
        t for t in Type if t not in OPTIONAL - {Type.DEPRECATED}
    ]
    assert [c for c in decision.conditions if c.type not in (*c.reason.types, Type.READY)] == []


def succeed(world: World) -> None:
    """Resume the resource, delete failed Jobs, and let everything succeed from now on."""
    world.spec["suspend"] = False
    for name, job in list(world.jobs.items()):
        if any(c["type"] == "Failed" for c in job.get("status", {}).get("conditions", [])):
            world.delete("Job", name)
    for _ in range(20):
        world.step()
        if world.claim is None:
            world.bind()
        for name, job in list(world.jobs.items()):
            if "status" not in job:
                world.finish(name, result(world, name))
        world.serve()


@settings(deadline=None, max_examples=examples(40))  # a list of events takes tens of milliseconds
@given(st.sampled_from(SHAPES), EVENTS)
def test_every_change_of_topology_ends_serving_and_idle(shape: str, events: list[str]) -> None:
    world = World(shaped(tensorrt(), shape))
    for event in events:
        happen(world, event)
        sound(world, world.step())
    succeed(world)

    assert world.condition("Ready")["status"] == "True", world.cr["status"]["conditions"]
    model = world.model()
    nodes = model.spec.serving.nodes_per_replica
    servers = {names.server_name(model, role) for role in names.servers(model)}
    assert set(world.deployments) == (servers if nodes == 1 else set())
    assert (world.group is not None) == (nodes > 1)
    assert set(world.services) == servers
    status, decision = json.dumps(world.cr["status"]), world.last
    assert decision is not None
    assert decision.requeue_after is None
    assert world.step() == decision
    assert json.dumps(world.cr["status"]) == status


@settings(deadline=None, max_examples=examples(20))
@given(st.sampled_from(SHAPES), EVENTS)
def test_the_live_revision_serves_until_the_next_is_ready(shape: str, events: list[str]) -> None:
    """A resource that has served always has a server, unless it is suspended."""
    world = World(shaped(tensorrt(), shape))
    succeed(world)
    for event in events:
        if event in ("suspend", "resume"):
            continue
        happen(world, event)
        world.step()
        assert world.group is not None or "pair" in world.deployments
        assert "pair" in world.services
