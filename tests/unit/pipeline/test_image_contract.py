"""Builds report names that they read from the image; status and repository use these names."""

import json
from typing import Any

import pytest

from specdec.backends.tensorrt import image
from support.simulated_cluster import World, fetched, settled
from unit.pipeline.tensorrt import Json, built, engines, facts, put, tensorrt
from unit.status_schema import refusals

OLDER = {"minTokens": "min_length", "seed": "random_seed"}
NEWER = {"minTokens": "min_tokens", "seed": "seed"}


def contract(fields: Json, **changed: Any) -> Json:
    return {"version": "0.19.0", "templates": 5, "flags": 20, "requestFields": fields, **changed}


def served(world: World, image: Json | None) -> World:
    """Let every Job succeed, and let the builds report the image."""
    world.settle(
        lambda component: {
            "fetch": fetched(),
            "engine": {"engine": {"seconds": 3.0, **({"image": image} if image else {})}},
        }.get(component, {})
    )
    assert world.condition("Available")["status"] == "True"
    assert list(refusals(world.cr["status"])) == []
    return world


def published(world: World) -> str:
    """Return all `config.pbtxt` files of the published models as one text."""
    (publish,) = (m for n, m in world.config_maps.items() if "publish" in n)
    files: Json = publish["data"]
    return "".join(text for text in files.values() if "max_batch_size:" in text)


@pytest.mark.parametrize("version", ["0.18.0", "0.19.0", "1.2.1"])
@pytest.mark.parametrize(("fields", "others"), [(OLDER, NEWER), (NEWER, OLDER)])
def test_published_names_are_those_of_the_image(version: str, fields: Json, others: Json) -> None:
    world = served(World(tensorrt(version=version)), contract(fields))
    assert world.cr["status"]["imageContract"] == {
        "image": world.cr["status"]["plan"]["image"],
        **contract(fields),
    }
    repository = published(world)
    for name in ("minTokens", "seed"):
        # Inputs of ensemble, BLS and both engines, and key and value in the ensemble's input map.
        assert repository.count(f'"{fields[name]}"') == 6
        assert f'"{others[name]}"' not in repository


def test_without_a_report_the_names_are_those_of_the_release() -> None:
    world = served(World(tensorrt(version="1.2.1")), None)
    assert "imageContract" not in world.cr["status"]
    assert '"min_tokens"' in published(world)


def test_the_contract_outlives_the_jobs() -> None:
    world = served(World(tensorrt()), contract(NEWER))
    before = world.cr["status"]["repository"]["hash"]
    world.jobs.clear()
    world.pods.clear()
    world.settle()
    assert world.cr["status"]["imageContract"]["requestFields"] == NEWER
    assert world.cr["status"]["repository"]["hash"] == before


def test_another_image_is_read_anew() -> None:
    world = served(World(tensorrt()), contract(NEWER))
    put(world.cr, "runtime.image", "registry.example/other:1")
    world.step()
    assert "imageContract" not in world.cr["status"]
    served(world, contract(OLDER))
    assert world.cr["status"]["imageContract"]["image"] == "registry.example/other:1"
    assert world.cr["status"]["imageContract"]["requestFields"] == OLDER


def test_flags_are_those_of_the_build_that_compared_most() -> None:
    world = World(tensorrt())
    counts = iter((30, 20))

    def result(component: str) -> Json:
        if component == "engine":
            return {"engine": {"image": contract(NEWER, flags=next(counts))}}
        return fetched() if component == "fetch" else {}

    world.settle(result)
    assert world.cr["status"]["imageContract"]["flags"] == 30


def test_a_warning_is_in_message_and_status() -> None:
    world = served(World(tensorrt()), contract(NEWER, warning="the image differs: set x"))
    world.jobs.clear()
    world.pods.clear()
    world.settle()
    assert world.cr["status"]["imageContract"]["warning"] == "the image differs: set x"
    message = world.condition("EnginesReady")["message"]
    assert message.endswith("; warning: the image differs: set x")


def test_only_another_severity_changes_the_key() -> None:
    keys = set()
    for severity in (None, "Enforce", "Warn", "Disabled"):
        cr = tensorrt("None")
        if severity:
            put(cr, "checks.image", severity)
        plan = engines(cr)["target"].plan
        assert plan.get("imageCheck") == (severity if severity != "Enforce" else None)
        keys.add(plan["key"])
    assert len(keys) == 3


@pytest.mark.parametrize(
    "image",
    [
        contract({"minTokens": "max_tokens", "seed": "seed"}),
        contract(NEWER, version=7),
        contract(NEWER, templates=-1),
        contract({}),
        {},
        "1.2.1",
    ],
)
def test_a_report_that_is_not_valid_is_not_used(image: Any) -> None:
    world = World(tensorrt("None"))
    world.settle(
        lambda component: fetched() if component == "fetch" else {"engine": {"image": image}}
    )
    condition = world.condition("EnginesReady")
    assert (condition["status"], condition["reason"]) == ("False", "InvalidResult")
    assert "engine.image" in condition["message"]
    assert "imageContract" not in world.cr["status"]


def test_an_image_that_differs_is_a_reason_with_the_sentence() -> None:
    world = World(tensorrt("None"))
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched())
    world.step()
    sentence = "the image differs from TensorRT-LLM 0.19.0: TensorRT-LLM 1.1.0 is installed: set x"
    world.fail(
        world.job("engine"),
        json.dumps({"error": {"reason": "ImageMismatch", "message": sentence}}),
    )
    world.step()
    condition = world.condition("EnginesReady")
    assert condition["reason"] == world.condition("Ready")["reason"] == "ImageMismatch"
    assert sentence in condition["message"]


def test_what_the_job_expects_depends_on_the_release_alone() -> None:
    """Resources share the ConfigMap of a build, so it must not depend on a resource."""
    for method in ("None", "DraftTarget"):
        world = settled(tensorrt(method))
        for job in world.named("engine"):
            expected = world.config_maps[job]["data"]["image.json"]
            assert json.loads(expected) == image.expectations("0.19.0")
            command = world.jobs[job]["spec"]["template"]["spec"]["containers"][0]["command"]
            assert command[-2:] == ["--image", "/specdec/build/image.json"]


def test_the_image_check_is_no_part_of_an_engine_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from specdec.api.model import SpeculativeModel
    from specdec.backends.tensorrt.builder import TensorRTBuilder as Builder

    model = SpeculativeModel.parse(tensorrt("None"))

    def key() -> str:
        return built(model, facts(model))["target"].key

    first, scripts = key(), dict(Builder().scripts)
    monkeypatch.setattr(Builder, "scripts", {**scripts, "image_check.py": "#"})
    assert key() == first
    monkeypatch.setattr(Builder, "scripts", {**scripts, "tensorrt_run.py": "#"})
    assert key() != first
