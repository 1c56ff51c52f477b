"""Properties of every memory plan."""

import time
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from specdec.api.methods.draft_target import Placement
from specdec.backends.footprint import EngineSizes, Sizes, footprint
from specdec.backends.memory_plan import Budget, MemoryPlan, plan
from unit.triton.sizes import H100, LLAMA_1B, LLAMA_70B, NONE, both, engine, on

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
    EngineSizes,
    sizes=SMALL,
    tensor=DEGREES,
    pipeline=st.just(1),
    bytes_per_body_parameter=st.sampled_from([0.53, 1.0, 2.0]),
    bytes_per_value=st.just(2),
    bytes_per_kv_element=st.sampled_from([1, 2]),
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
    target: EngineSizes,
    draft: EngineSizes,
    placement: Placement,
    budgets: Mapping[str, Budget] = NONE,
) -> MemoryPlan:
    ranks = on(target.tensor, draft.tensor, placement=placement)
    return plan(gpu, ranks, both(target, draft), budgets)


@given(MEMORY, ENGINES, ENGINES, st.sampled_from(Placement), BUDGETS, BUDGETS)
def test_a_plan_that_fits_takes_no_more_than_the_memory(
    gpu: int,
    target: EngineSizes,
    draft: EngineSizes,
    placement: Placement,
    one: Budget,
    two: Budget,
) -> None:
    made = made_of(gpu, target, draft, placement, {"target": one, "draft": two})

    assert len({d.name for d in made.devices}) == len(made.devices)
    if made.fits:
        assert all(device.used <= device.total for device in made.devices)
        assert all(device.percent <= 100 for device in made.devices)
        assert min(made.kv_tokens.values()) > 0


@given(MEMORY, ENGINES, ENGINES, st.sampled_from(Placement))
def test_a_planned_cache_leaves_a_tenth_and_is_never_useless(
    gpu: int, target: EngineSizes, draft: EngineSizes, placement: Placement
) -> None:
    made = made_of(gpu, target, draft, placement)
    sizes = both(target, draft)

    for device in made.devices:
        cache = sum(size for name, size in device.parts.items() if name.endswith("KvCache"))
        free = device.total - device.used + cache
        assert cache <= max(0.9 * free, 0)
    for role, tokens in made.kv_tokens.items():
        assert tokens <= sizes[role].full_batch
        assert tokens % 64 == 0


@given(MEMORY, MEMORY, ENGINES, ENGINES, st.sampled_from(Placement))
def test_more_memory_is_never_worse(
    one: int, two: int, target: EngineSizes, draft: EngineSizes, placement: Placement
) -> None:
    less = made_of(min(one, two), target, draft, placement)
    more = made_of(max(one, two), target, draft, placement)

    assert more.fits >= less.fits
    assert all(more.kv_tokens[role] >= tokens for role, tokens in less.kv_tokens.items())


@given(MEMORY, ENGINES, st.integers(1, 512), st.integers(64, 131_072), st.integers(64, 32_768))
def test_smaller_limits_are_never_worse(
    gpu: int, target: EngineSizes, batch: int, length: int, tokens: int
) -> None:
    smaller = EngineSizes(
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
def test_more_ranks_take_less_of_each_gpu_and_no_more_cache(target: EngineSizes) -> None:
    split = EngineSizes(**{**vars(target), "tensor": 2 * target.tensor})
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
