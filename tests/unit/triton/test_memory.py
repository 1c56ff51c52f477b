"""Two models on the GPUs of a rank plan."""

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.api.speculation import Placement, Topology
from specdec.triton.footprint import Engine, Footprint, Sizes, footprint
from specdec.triton.memory import MIB, Budget, MemoryPlan, plan
from specdec.triton.ranks import Layout, RankPlan, Split
from specdec.triton.ranks import plan as ranks_of

NONE: Mapping[str, Budget] = {}
LLAMA_8B = Sizes(128256, 4096, 32, 32, 8, 128, 14336, 8030261248)
LLAMA_70B = Sizes(128256, 8192, 80, 64, 8, 128, 28672, 70553706496)
LLAMA_1B = Sizes(128256, 2048, 16, 32, 8, 64, 8192, 1235814400, tied=True)
H100 = 81559


def engine(sizes: Sizes, tensor: int = 1, batch: int = 8, length: int = 2048) -> Engine:
    return Engine(sizes, tensor, 1, 2, 2, 2, batch, length, 8192)


def on(
    target: int = 1,
    draft: int | None = None,
    *,
    placement: Placement = Placement.SHARED,
    topology: Topology = Topology.SINGLE_SERVER,
    fast_logits: bool = False,
) -> RankPlan:
    splits = Split(target), Split(draft) if draft else None
    return ranks_of(Layout(*splits, topology, placement, fast_logits))


def both(target: Engine, draft: Engine) -> dict[str, Footprint]:
    return {"target": footprint(target), "draft": footprint(draft)}


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
    # A tenth of what the models leave stays free, and no more than a block of both beside it.
    free = device.total - device.used + tokens * 160 * 1024
    assert 0 <= device.total - device.used - free * 0.1 < 64 * 160 * 1024 + 1


def test_what_the_draft_cannot_use_goes_to_the_target() -> None:
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
    # The second rank, and the orchestrator's context and pool.
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


def test_percentages_count_as_if_each_model_loaded_first() -> None:
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
        beside = (alone - own[other]) * 30 // 100 // sizes[role].kv_per_token
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

    # 16 GiB of cache for one sequence beside 15 GiB of weights.
    made = plan(23028, on(), {"target": long}, NONE)

    assert not made.crowded
    assert made.short == ("target",)
    assert not made.fits


SMALL = st.builds(
    Sizes,
    vocab=st.integers(1000, 160_000),
    hidden=st.sampled_from([512, 2048, 4096, 8192]),
    layers=st.integers(1, 100),
    heads=st.sampled_from([8, 32, 64]),
    kv_heads=st.sampled_from([1, 4, 8]),
    head_dim=st.sampled_from([64, 128]),
    intermediate=st.integers(1000, 30_000),
    parameters=st.integers(10**8, 10**11),
    tied=st.booleans(),
)
DEGREES = st.sampled_from([1, 2, 4, 8])
ENGINES = st.builds(
    Engine,
    sizes=SMALL,
    tensor=DEGREES,
    pipeline=st.just(1),
    body_bytes=st.sampled_from([0.53, 1.0, 2.0]),
    dtype_bytes=st.just(2),
    kv_bytes=st.sampled_from([1, 2]),
    max_batch_size=st.integers(1, 512),
    max_seq_len=st.integers(64, 131_072),
    max_num_tokens=st.integers(64, 32_768),
    draft_len=st.integers(0, 100),
)
BUDGETS = st.builds(Budget) | st.builds(Budget, tokens=st.integers(1, 10**6))
BUDGETS |= st.builds(Budget, percent=st.integers(1, 95))
MEMORY = st.integers(8_000, 190_000)


def made_of(
    gpu: int,
    target: Engine,
    draft: Engine,
    placement: Placement,
    budgets: Mapping[str, Budget] = NONE,
) -> MemoryPlan:
    ranks = on(target.tensor, draft.tensor, placement=placement)
    return plan(gpu, ranks, both(target, draft), budgets)


@given(MEMORY, ENGINES, ENGINES, st.sampled_from(Placement), BUDGETS, BUDGETS)
def test_what_fits_never_takes_more_than_there_is(
    gpu: int, target: Engine, draft: Engine, placement: Placement, one: Budget, two: Budget
) -> None:
    made = made_of(gpu, target, draft, placement, {"target": one, "draft": two})

    assert len({d.name for d in made.devices}) == len(made.devices)
    if made.fits:
        assert all(device.used <= device.total for device in made.devices)
        assert all(device.percent <= 100 for device in made.devices)
        assert min(made.kv_tokens.values()) > 0


@given(MEMORY, ENGINES, ENGINES, st.sampled_from(Placement))
def test_a_planned_cache_leaves_a_tenth_and_is_never_useless(
    gpu: int, target: Engine, draft: Engine, placement: Placement
) -> None:
    made = made_of(gpu, target, draft, placement)
    sizes = both(target, draft)

    for device in made.devices:
        cache = sum(size for name, size in device.parts.items() if name.endswith("KvCache"))
        free = device.total - device.used + cache
        assert cache <= max(0.9 * free, 0)
    for role, tokens in made.kv_tokens.items():
        assert tokens <= sizes[role].wanted
        assert tokens % 64 == 0


@given(MEMORY, MEMORY, ENGINES, ENGINES, st.sampled_from(Placement))
def test_more_memory_is_never_worse(
    one: int, two: int, target: Engine, draft: Engine, placement: Placement
) -> None:
    less = made_of(min(one, two), target, draft, placement)
    more = made_of(max(one, two), target, draft, placement)

    assert more.fits >= less.fits
    assert all(more.kv_tokens[role] >= tokens for role, tokens in less.kv_tokens.items())


@given(MEMORY, ENGINES, st.integers(1, 512), st.integers(64, 131_072), st.integers(64, 32_768))
def test_smaller_limits_are_never_worse(
    gpu: int, target: Engine, batch: int, length: int, tokens: int
) -> None:
    smaller = Engine(
        **{
            **vars(target),
            "max_batch_size": min(batch, target.max_batch_size),
            "max_seq_len": min(length, target.max_seq_len),
            "max_num_tokens": min(tokens, target.max_num_tokens),
        }
    )
    ranks = on(target.tensor)

    large = plan(gpu, ranks, {"target": footprint(target)}, NONE)
    small = plan(gpu, ranks, {"target": footprint(smaller)}, NONE)

    assert small.fits >= large.fits
    assert len(small.tight) <= len(large.tight)


@given(ENGINES)
def test_more_ranks_take_less_of_each_gpu_and_no_more_cache(target: Engine) -> None:
    split = Engine(**{**vars(target), "tensor": 2 * target.tensor})
    whole, half = footprint(target), footprint(split)

    for name in ("Weights", "Activations"):
        assert half.parts[name] <= whole.parts[name]
    assert half.kv_per_token <= whole.kv_per_token


def test_planning_takes_no_time() -> None:
    target, draft = engine(LLAMA_70B, tensor=8, batch=512), engine(LLAMA_1B, batch=512)
    ranks = on(8, 1)

    start = time.process_time()
    for _ in range(20):
        plan(H100, ranks, both(target, draft), NONE)

    assert (time.process_time() - start) / 20 < 0.005
