"""Programs of pods: applied before the pods, kept while a pod or the template mounts them."""

from unittest.mock import patch

from specdec.desired import programs
from specdec.triton import launch
from support.simulated_cluster import World, resource, settled


def config_maps(world: World) -> list[str]:
    return sorted(name for name in world.config_maps if "-programs-" in name)


def add_server_pod(world: World) -> None:
    assert world.deployment is not None
    template = world.deployment["spec"]["template"]
    meta = {"labels": template["metadata"]["labels"], "creationTimestamp": "2026-01-02T03:04:05Z"}
    world.pods.append({"metadata": {"name": "pair-0", **meta}, "spec": template["spec"]})


def other_release(name: str) -> str:
    return f"# {name} of another release\n"


def test_programs_are_applied_before_the_deployment() -> None:
    world = settled(resource())
    assert world.last is not None
    kinds = [item["metadata"]["name"] for item in world.last.apply]
    assert kinds.index(programs.name(world.model())) < kinds.index("pair")


def test_deleted_programs_are_created_again() -> None:
    world = settled(resource())
    (name,) = config_maps(world)
    world.delete("ConfigMap", name)
    world.step()
    assert config_maps(world) == [name]


def test_deleted_programs_are_created_again_while_another_revision_is_built() -> None:
    world = settled(resource())
    (name,) = config_maps(world)
    world.spec["speculation"]["maxDraftTokens"] = 6
    world.step()
    assert world.condition("EnginesReady")["status"] != "True"
    world.delete("ConfigMap", name)
    world.step()
    assert config_maps(world) == [name]


def test_upgrade_keeps_old_programs_until_no_pod_mounts_them() -> None:
    world = settled(resource())
    add_server_pod(world)
    (old,) = config_maps(world)
    with patch.object(launch, "program", other_release):
        new = programs.name(world.model())
        world.step()
        assert set(config_maps(world)) == {old, new}
        world.step()
        assert set(config_maps(world)) == {old, new}, "a pod still mounts the old programs"
        world.pods.clear()
        world.step()
        assert config_maps(world) == [new]


def test_upgrade_during_a_build_leaves_the_live_programs_alone() -> None:
    world = settled(resource())
    (old,) = config_maps(world)
    world.spec["speculation"]["maxDraftTokens"] = 6
    with patch.object(launch, "program", other_release):
        world.step()
        world.step()
    assert config_maps(world) == [old]
