"""MemoryFits among the other conditions: which stages it blocks, and which it does not."""

import json
from typing import Any

from specdec.api.conditions import Condition, Type
from specdec.api.reasons import AcceptedReason, CommonReason, MemoryReason
from specdec.pipeline import summary
from support.simulated_cluster import FACTS, World, fetched, resource, settled, source
from unit.pipeline.public import alone, spec

A10, H100 = "NVIDIA-A10", "NVIDIA-H100-80GB-HBM3"


def test_a_cpu_backend_needs_no_plan() -> None:
    world = settled(resource())

    assert world.condition("MemoryFits")["reason"] == "NotNeeded"
    assert "memory" not in world.cr["status"]["plan"]


def on_tensorrt(layers: int, **draft: Any) -> World:
    """Return a world with a fetched pair on a GPU."""
    speculation = {
        "method": "DraftTarget",
        "maxDraftTokens": 8,
        "draftTarget": {"draft": {"source": source("draft"), **draft}},
    }
    cr = resource(
        runtime={"backend": "TensorRT"},
        gpu={"product": A10},
        target={"source": source("target")},
        speculation=speculation,
    )
    world = World(cr)
    facts = FACTS | {"layers": layers, "parameters": 10**9, "intermediateSize": 1024}
    world.settle(lambda stage: fetched(target=facts, draft=facts) if stage == "fetch" else {})
    return world


def test_models_that_do_not_fit_get_no_gpu() -> None:
    # A token takes 97 MiB of cache: 2 x 200000 layers x 2 heads x 64 x 2 bytes.
    world = on_tensorrt(layers=200_000)

    assert world.condition("MemoryFits")["reason"] == "InsufficientGpuMemory"
    assert world.condition("EnginesReady")["reason"] == "Waiting"
    assert world.named("engine") == []
    ready_ = world.condition("Ready")
    assert (ready_["status"], ready_["reason"]) == ("False", "InsufficientGpuMemory")
    assert world.cr["status"]["phase"] == "Failed"
    assert world.cr["status"]["plan"]["memory"]["devices"][0]["device"] == "target+draft:0"


def test_budgets_reach_the_model_repository() -> None:
    world = on_tensorrt(layers=4, limits={"maxBatchSize": 4})

    assert world.condition("MemoryFits")["reason"] == "SufficientGpuMemory"
    assert world.condition("Ready")["status"] == "True"
    (job,) = world.named("publish")
    files = json.dumps(world.config_maps[job]["data"])
    for tokens in (8 * 2112, 4 * 2048):
        assert f'max_tokens_in_paged_kv_cache\\"\\n  value {{ string_value: \\"{tokens}' in files


def test_unknown_condition_does_not_hold_ready_back() -> None:
    model = alone(H100, spec())
    stages = [Condition(t, "True", AcceptedReason.VALID) for t in Type if t is not Type.READY]
    at = list(Type).index(Type.MEMORY_FITS)
    stages[at] = Condition(Type.MEMORY_FITS, "Unknown", MemoryReason.UNKNOWN_GPU)

    ready = summary.ready(model, stages)

    assert ready.status == "True"
    assert summary.phase(model, stages, ready) == "Serving"


def test_ready_names_the_first_stage_that_waits() -> None:
    stages = summary.complete(
        [
            *(Condition(t, "True", AcceptedReason.VALID) for t in list(Type)[:4]),
            Condition(Type.MEMORY_FITS, "Unknown", MemoryReason.UNKNOWN_GPU),
        ]
    )

    assert stages[5] == Condition(
        Type.ENGINES_READY, "Unknown", CommonReason.WAITING, "waits for EnginesReady"
    )
