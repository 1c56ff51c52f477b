"""The memory of one or two models on the GPUs of a rank plan."""

import pytest

from specdec.api.methods.draft_target import Placement, Topology
from specdec.backends.footprint import Sizes, footprint
from specdec.backends.memory_plan import MIB, Budget, MemoryPlan, plan
from unit.triton.sizes import H100, LLAMA_1B, LLAMA_8B, LLAMA_70B, NONE, both, engine, on


def part(made: MemoryPlan, device: str, name: str) -> int:
    return next(d for d in made.devices if d.name == device).parts[name]


def test_a_full_batch_is_all_that_a_cache_gets() -> None:
    made = plan(H100, on(), {"target": footprint(engine(LLAMA_8B))}, NONE)

    assert made.fits
    assert not made.tight
    assert made.kv_tokens == {"target": 8 * 2048}
    assert part(made, "target:0", "targetKvCache") == 8 * 2048 * 128 * 1024


def test_models_of_one_gpu_hold_as_many_tokens() -> None:
    sizes = both(engine(LLAMA_8B, batch=256), engine(LLAMA_1B, batch=256))

    made = plan(H100, on(1, 1), sizes, NONE)

    assert made.fits
    assert set(made.tight) == {"target", "draft"}
    tokens = made.kv_tokens["target"]
    assert made.kv_tokens == {"target": tokens, "draft": tokens}
    (device,) = made.devices
    assert device.name == "target+draft:0"
    # A tenth of the memory beside the models stays free, plus at most a block of both caches.
    free = device.total - device.used + tokens * 160 * 1024
    assert 0 <= device.total - device.used - free * 0.1 < 64 * 160 * 1024 + 1


def test_memory_that_the_draft_cannot_use_goes_to_the_target() -> None:
    sizes = both(engine(LLAMA_8B, batch=256), engine(LLAMA_1B, batch=4))

    made = plan(H100, on(1, 1), sizes, NONE)

    assert made.kv_tokens["draft"] == 4 * 2048
    assert made.kv_tokens["target"] > 100_000


def test_dedicated_models_have_gpus_of_their_own() -> None:
    sizes = both(engine(LLAMA_70B, tensor=4), engine(LLAMA_1B))

    made = plan(H100, on(4, 1, placement=Placement.DEDICATED), sizes, NONE)

    assert [d.name for d in made.devices] == [*(f"target:{i}" for i in range(4)), "draft:4"]
    assert "draftWeights" not in made.devices[0].parts
    assert set(made.devices[4].parts) >= {"draftWeights", "draftKvCache"}


def test_two_servers_count_their_gpus_from_zero_each() -> None:
    sizes = both(engine(LLAMA_8B), engine(LLAMA_1B))
    ranks = on(1, 1, placement=Placement.DEDICATED, topology=Topology.TWO_SERVERS)

    assert [d.name for d in plan(H100, ranks, sizes, NONE).devices] == ["target:0", "draft:0"]


def test_a_rank_of_its_own_is_a_process_of_its_own() -> None:
    sizes = both(engine(LLAMA_8B), engine(LLAMA_1B))

    one, two = (
        plan(H100, on(1, 1), sizes, NONE),
        plan(H100, on(1, 1, fast_logits=True), sizes, NONE),
    )

    grown = part(two, "target+draft:0", "runtime") - part(one, "target+draft:0", "runtime")
    # The second rank takes memory, and so do the orchestrator's context and pool.
    assert grown == (1024 + 512) * MIB


def test_every_process_of_a_pod_is_on_every_gpu() -> None:
    sizes = {"target": footprint(engine(LLAMA_8B, tensor=4))}

    made = plan(H100, on(4), sizes, NONE)

    assert {d.parts["runtime"] for d in made.devices} == {
        int(H100 * MIB * 0.01) + (1024 + 3 * 512) * MIB
    }


def test_fixed_tokens_are_kept_and_counted() -> None:
    sizes = both(engine(LLAMA_8B, batch=256), engine(LLAMA_1B, batch=256))

    made = plan(H100, on(1, 1), sizes, {"target": Budget(tokens=10_000)})

    assert made.kv_tokens["target"] == 10_000
    assert part(made, "target+draft:0", "targetKvCache") == 10_000 * 128 * 1024
    assert made.kv_tokens["draft"] > 500_000
    assert made.fits


def test_fixed_tokens_beyond_the_gpu_are_refused() -> None:
    made = plan(H100, on(), {"target": footprint(engine(LLAMA_8B))}, {"target": Budget(10**6)})

    assert not made.fits
    assert [d.name for d in made.overdrawn] == ["target:0"]


def test_percentages_count_bytes_of_the_first_and_tokens_of_the_last_to_load() -> None:
    sizes = both(engine(LLAMA_8B), engine(LLAMA_1B))

    made = plan(H100, on(1, 1), sizes, {r: Budget(percent=30) for r in sizes})
    (device,) = made.devices
    own = {
        role: sum(v for k, v in device.parts.items() if k.startswith(role) and "Kv" not in k)
        for role in sizes
    }

    for role, other in (("target", "draft"), ("draft", "target")):
        alone = device.total - own[role] - device.parts["runtime"]
        assert device.parts[f"{role}KvCache"] == alone * 30 // 100
        # The other model and its cache were loaded before.
        left = alone - own[other] - device.parts[f"{other}KvCache"]
        beside = left * 30 // 100 // sizes[role].kv_per_token
        assert made.kv_tokens[role] == beside // 64 * 64
    assert made.fits


def test_percentages_that_only_fit_in_one_order_are_refused() -> None:
    sizes = both(engine(LLAMA_8B), engine(LLAMA_1B))

    assert plan(H100, on(1, 1), sizes, {r: Budget(percent=55) for r in sizes}).overdrawn


@pytest.mark.parametrize(
    ("sizes", "tensor", "gpu"),
    [(LLAMA_70B, 1, H100), (LLAMA_70B, 2, 46068), (LLAMA_8B, 1, 15360)],
    ids=["70B on one H100", "70B on two L40S", "8B on a T4"],
)
def test_weights_beyond_the_gpu_are_refused(sizes: Sizes, tensor: int, gpu: int) -> None:
    made = plan(gpu, on(tensor), {"target": footprint(engine(sizes, tensor))}, NONE)

    assert not made.fits
    assert len(made.crowded) == tensor
    assert made.kv_tokens == {"target": 0}


def test_a_cache_below_one_sequence_is_refused() -> None:
    long = footprint(engine(LLAMA_8B, batch=1, length=131072))

    # One sequence needs 16 GiB of cache, beside 15 GiB of weights.
    made = plan(23028, on(), {"target": long}, NONE)

    assert not made.crowded
    assert made.short == ("target",)
    assert not made.fits
