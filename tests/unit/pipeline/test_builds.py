"""Engine builds: their resources, their progress, and engines that need no build."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from typing_extensions import override

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts
from specdec.backends.reference import Reference
from specdec.backends.reference.builder import ReferenceBuilder
from specdec.backends.tensorrt.needs import needs
from specdec.desired import engine as desired
from specdec.desired.engine import Needs
from specdec.desired.pod import Volume
from specdec.pipeline.pods import diagnosis
from support.simulated_cluster import World, ended, fetched, resource

GIB = 1 << 30


def building(**spec: Any) -> World:
    world = World(resource("None", **spec))
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched())
    world.step()
    return world


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("progress phase=convert percent=40 x\nnoise\n", ("convert", 40)),
        ("progress phase=a percent=1\nprogress phase=b percent=2\n", ("b", 2)),
        ("progress phase=build percent=170\n", ("build", 100)),
        ("my progress phase=build percent=1\n", None),
        ("progress phase=BUILD percent=1\n", None),
        ("progress phase=build percent=x\n", None),
        ("", None),
    ],
)
def test_the_last_progress_line_counts(log: str, expected: tuple[str, int] | None) -> None:
    progress = diagnosis.last_progress(log)
    assert (progress and (progress.phase, progress.percent)) == expected


def test_a_running_build_shows_phase_and_percent() -> None:
    world = building()
    world.write_log(world.job("engine"), "progress phase=convert percent=40\nlayer 7\n")
    world.step()
    (entry,) = world.cr["status"]["engines"]
    assert (entry["state"], entry["phase"], entry["percent"]) == ("Building", "convert", 40)
    assert "convert 40 %" in world.condition("EnginesReady")["message"]
    world.finish(world.job("engine"), {"engine": {"seconds": 3.2}})
    world.step()
    (entry,) = world.cr["status"]["engines"]
    assert entry["state"] == "Built"
    assert not {"phase", "percent", "progress"} & entry.keys()


def test_running_fetch_shows_its_progress() -> None:
    world = World(resource())
    world.bind()
    world.step()
    world.write_log(world.job("fetch"), "progress phase=download percent=12 target\n")
    world.step()
    assert "download 12 %" in world.condition("ModelsFetched")["message"]


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (
            {"limits": {"memory": "8Gi"}},
            "of 8Gi: raise spec.build.resources.limits.memory to 16Gi",
        ),
        ({"limits": {"memory": "1.5Gi"}}, "limits.memory to twice 1.5Gi"),
        ({"requests": {"memory": "500M"}}, "of 1000M (now 500M) in spec.build.resources.requests"),
        ({}, "request more memory in spec.build.resources.requests.memory"),
    ],
)
def test_out_of_memory_message_has_twice_the_limit(resources: dict[str, Any], text: str) -> None:
    world = building(build={"resources": resources})
    job = world.job("engine")
    world.pod(job, ended("", code=137, reason="OOMKilled"))
    world._end(job, "Failed", "BackoffLimitExceeded")
    world.step()
    condition = world.condition("EnginesReady")
    assert condition["reason"] == "OutOfMemory"
    assert text in condition["message"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("0/3 nodes are available.", ""),
        (
            "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's "
            "node affinity/selector.",
            "free GPUs of such a node, or add one",
        ),
        (
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            "no node that it may use has it: correct gpu.product",
        ),
    ],
)
def test_unschedulable_build_names_the_gpu_product(text: str, advice: str) -> None:
    gpus = {"gpu": {"product": "NVIDIA-L4"}}
    target = resource()["spec"]["target"] | {"gpu": {"deviceIds": [0]}}
    world = building(target=target, **gpus)
    job = world.job("engine")
    selector = world.jobs[job]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    world.pod(job, {"phase": "Pending", "conditions": [{**unscheduled, "message": text}]})
    world.step()
    condition = world.condition("EnginesReady")
    assert condition["reason"] == "Unschedulable"
    assert "; it asks for a node whose label" in condition["message"]
    assert "is NVIDIA-L4" in condition["message"]
    assert advice in condition["message"]
    assert ("free" in condition["message"]) == ("free" in advice)


class Prebuilt(ReferenceBuilder):
    """The Reference backend's builder with a fetched engine instead of a build."""

    @override
    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        return replace(super().engine(model, checkpoint, facts), checkpoint="e" * 64)


def test_a_prebuilt_engine_gets_no_job() -> None:
    with patch.object(Reference, "builder", Prebuilt()):
        world = building()
    (entry,) = world.cr["status"]["engines"]
    assert world.named("engine") == []
    assert entry["state"] == "Prebuilt"
    assert "job" not in entry
    condition = world.condition("EnginesReady")
    assert condition["status"] == "True"
    assert "(prebuilt)" in condition["message"]


def plan(method: str = "None", workers: int | None = None) -> dict[str, Any]:
    return {
        "key": "k" * 64,
        "role": "target",
        "engine": {"workers": workers},
        "quantization": {"method": method},
    }


@pytest.mark.parametrize(
    ("given", "devices", "expected"),
    [
        (plan(), 8, 1),
        (plan(workers=4), 8, 4),
        (plan(workers=16), 8, 8),
        (plan("FP8"), 8, 8),
        (plan("FP8", workers=2), 4, 4),
        (plan(), 1, 1),
    ],
)
def test_one_gpu_builds_all_ranks_unless_it_quantizes(
    given: dict[str, Any], devices: int, expected: int
) -> None:
    # TensorRT-LLM's guides start a container with 2 GiB of shared memory for one GPU.
    assert needs(given, devices, 100 * GIB) == Needs(expected, 158 * GIB, expected * 2 * GIB)


def test_a_conversion_on_the_cpu_takes_the_gpus_that_it_serves_on() -> None:
    for ids in ((), (0,)):
        target = resource()["spec"]["target"] | {"gpu": {"deviceIds": list(ids)}}
        model = SpeculativeModel.parse(resource(target=target))
        needed = ReferenceBuilder().needs(model, Engine("target", "k", {}))
        assert needed == Needs(len(ids))


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({}, {"memory": "26Gi", "ephemeral-storage": "8Gi"}),
        ({"requests": {"memory": "99Gi"}}, {"memory": "99Gi", "ephemeral-storage": "8Gi"}),
        ({"limits": {"memory": "99Gi"}}, {"ephemeral-storage": "8Gi"}),
        ({"requests": {"cpu": "4", "ephemeral-storage": "1Gi"}}, None),
    ],
)
def test_memory_request_follows_the_checkpoint_unless_the_spec_sets_it(
    resources: dict[str, Any], requests: dict[str, str] | None
) -> None:
    model = SpeculativeModel.parse(resource(build={"resources": resources}))
    needed = needs(plan(), 2, 10 * GIB + 1)
    job = desired.job(
        model, plan(), Volume("c", "c", single_node=False), "image", needed, "operator"
    )
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == "1"
    expected = requests or {"cpu": "4", "ephemeral-storage": "1Gi", "memory": "26Gi"}
    assert resources["requests"] == expected


@pytest.mark.parametrize(
    ("build", "size", "memory"),
    [
        ({}, "4Gi", "28Gi"),
        ({"sharedMemory": "512Mi"}, "512Mi", "24Gi"),
        ({"sharedMemory": "64Gi"}, "64Gi", "88Gi"),
        ({"sharedMemory": "64Gi", "resources": {"requests": {"memory": "9Gi"}}}, "64Gi", "9Gi"),
    ],
)
def test_shared_memory_of_a_build_is_sized_and_counted(
    build: dict[str, Any], size: str, memory: str
) -> None:
    model = SpeculativeModel.parse(resource(build=build))
    needed = needs(plan(workers=2), 2, 10 * GIB + 1)
    job = desired.job(
        model, plan(), Volume("c", "c", single_node=False), "image", needed, "operator"
    )
    pod = job["spec"]["template"]["spec"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}} in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert container["resources"]["requests"]["memory"] == memory


def test_a_conversion_on_the_cpu_shares_no_memory_unless_the_spec_sets_it() -> None:
    for build, shared in (({}, False), ({"sharedMemory": "1Gi"}, True)):
        model = SpeculativeModel.parse(resource(build=build))
        volume = Volume("c", "c", single_node=False)
        job = desired.job(model, plan(), volume, "image", Needs(0), "operator")
        names = [v["name"] for v in job["spec"]["template"]["spec"]["volumes"]]
        assert ("shm" in names) is shared
