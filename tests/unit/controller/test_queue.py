"""The queue on a simulated clock: order, exclusiveness, back-off, shutdown and health."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.controller.queue import Backoff, Key, Result, WorkQueue
from support.simulated_clock import run, simulated_clock

A: Key = ("ns", "a")
B: Key = ("ns", "b")
STEADY = Backoff(jitter=0.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Recorder:
    """A reconcile function that records its calls and returns given results."""

    def __init__(self, duration: float = 0.0, *results: Result) -> None:
        self.duration = duration
        self.results = list(results)
        self.started: list[tuple[Key, float]] = []
        self.finished = 0
        self.running: set[Key] = set()
        self.most_running = 0

    async def __call__(self, key: Key) -> Result:
        assert key not in self.running, "one key runs in two workers"
        self.running.add(key)
        self.most_running = max(self.most_running, len(self.running))
        self.started.append((key, now()))
        try:
            await asyncio.sleep(self.duration)
        finally:
            self.running.discard(key)
        self.finished += 1
        return self.results.pop(0) if self.results else Result()

    def times(self, key: Key = A) -> list[float]:
        return [round(at, 3) for k, at in self.started if k == key]


@contextlib.asynccontextmanager
async def running(queue: WorkQueue) -> AsyncIterator[WorkQueue]:
    loop = asyncio.get_running_loop().create_task(queue.run())
    try:
        yield queue
    finally:
        await queue.stop(grace=1000)
        await loop


@simulated_clock
async def test_burst_for_one_key_causes_one_reconcile() -> None:
    reconcile = Recorder()
    async with running(WorkQueue(reconcile)) as queue:
        for _ in range(1000):
            queue.add(A)
        await asyncio.sleep(10)
    assert reconcile.times() == [0.0]


@simulated_clock
async def test_key_added_during_its_reconcile_is_reconciled_once_more() -> None:
    reconcile = Recorder(5.0)
    async with running(WorkQueue(reconcile)) as queue:
        queue.add(A)
        await asyncio.sleep(1)
        queue.add(A)
        queue.add(A)
        await asyncio.sleep(20)
    assert reconcile.times() == [0.0, 5.0]


@simulated_clock
async def test_workers_limit_concurrency_and_slow_keys_do_not_delay_others() -> None:
    reconcile = Recorder(10.0)
    async with running(WorkQueue(reconcile, workers=2)) as queue:
        for number in range(6):
            queue.add(("ns", str(number)))
        await asyncio.sleep(40)
    assert reconcile.most_running == 2
    assert [at for _, at in reconcile.started] == [0, 0, 10, 10, 20, 20]


@simulated_clock
async def test_failures_back_off_exponentially_per_key_until_success() -> None:
    failure = Result(failed=True)
    reconcile = Recorder(0.0, failure, failure, failure, Result(), failure, Result())
    async with running(WorkQueue(reconcile, backoff=STEADY)) as queue:
        queue.add(A)
        await asyncio.sleep(50)
        queue.add(A)
        await asyncio.sleep(50)
    assert reconcile.times() == [0, 1, 3, 7, 50, 51]


@simulated_clock
async def test_event_brings_a_failing_key_forward_but_not_below_the_first_back_off() -> None:
    failure = Result(failed=True)
    reconcile = Recorder(0.0, *[failure] * 7)
    async with running(WorkQueue(reconcile, backoff=STEADY)) as queue:
        queue.add(A)
        await asyncio.sleep(32)  # reconciles at 0 1 3 7 15 31, the next due at 63
        queue.add(A)
        await asyncio.sleep(2)
    assert reconcile.times() == [0, 1, 3, 7, 15, 31, 33]


def test_exception_or_timeout_counts_as_failure_of_that_key_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        calls: list[tuple[Key, float]] = []

        async def reconcile(key: Key) -> Result:
            calls.append((key, now()))
            if key == A and len(calls) == 1:
                raise ValueError("broken")
            if key == B:
                await asyncio.sleep(10_000)
            return Result()

        async with running(WorkQueue(reconcile, timeout=30, backoff=STEADY)) as queue:
            queue.add(A)
            queue.add(B)
            await asyncio.sleep(35)
        assert [at for key, at in calls if key == A] == [0, 1]
        assert [at for key, at in calls if key == B][:2] == [0, 31]

    run(scenario())
    assert "broken" in caplog.text
    assert "took more than 30 s" in caplog.text


@simulated_clock
async def test_earliest_request_counts_and_a_result_may_requeue() -> None:
    reconcile = Recorder(0.0, Result(requeue_after=7), Result())
    async with running(WorkQueue(reconcile)) as queue:
        queue.add_after(A, 30)
        queue.add_after(A, 10)
        queue.add_after(A, 20)
        assert queue.depth == 1
        await asyncio.sleep(100)
    assert reconcile.times() == [10, 17]


@simulated_clock
async def test_stop_lets_a_running_reconcile_finish_and_starts_no_other() -> None:
    reconcile = Recorder(5.0)
    queue = WorkQueue(reconcile, workers=1)
    loop = asyncio.get_running_loop().create_task(queue.run())
    queue.add(A)
    queue.add(B)
    await asyncio.sleep(1)
    await queue.stop(grace=20)
    await loop
    assert reconcile.finished == 1
    assert reconcile.times(B) == []


@simulated_clock
async def test_stop_cancels_reconciles_after_the_grace_period() -> None:
    reconcile = Recorder(1000.0)
    queue = WorkQueue(reconcile, timeout=10_000)
    loop = asyncio.get_running_loop().create_task(queue.run())
    queue.add(A)
    await asyncio.sleep(1)
    await queue.stop(grace=20)
    await loop
    assert now() == pytest.approx(21)
    assert reconcile.finished == 0
    assert queue.active == frozenset()


@simulated_clock
async def test_health_shows_a_stopped_loop_and_a_long_reconcile() -> None:
    queue = WorkQueue(Recorder(100.0), timeout=10_000)
    assert queue.health().idle_seconds == float("inf")
    loop = asyncio.get_running_loop().create_task(queue.run())
    queue.add(A)
    await asyncio.sleep(60)
    assert queue.health().idle_seconds <= WorkQueue.HEARTBEAT
    assert queue.health().longest_reconcile_seconds == pytest.approx(60)
    loop.cancel()
    await asyncio.sleep(60)
    assert queue.health().idle_seconds >= 55
    await queue.stop(grace=0)


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_back_off_stays_within_its_bounds(failures: int, seed: int) -> None:
    backoff = Backoff(first=1, ceiling=300, jitter=0.2)
    delay = backoff.delay(failures, random.Random(seed))
    assert 0.8 <= delay <= 360


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.one_of(st.just(0.0), st.floats(0.01, 20)),  # 0: add; otherwise add_after
        st.floats(0, 10),  # seconds before the next item
    ),
    max_size=40,
)


@pytest.mark.slow
@given(
    steps=STEPS,
    duration=st.floats(0, 7),
    workers=st.integers(1, 3),
    failing=st.lists(st.booleans(), max_size=20),
)
@settings(max_examples=60, deadline=None)
@simulated_clock
async def test_no_key_is_lost_or_reconciled_twice_at_once(
    steps: list[tuple[str, float, float]], duration: float, workers: int, failing: list[bool]
) -> None:
    reconcile = Recorder(duration, *[Result(failed=flag) for flag in failing])
    last: dict[Key, float] = {}
    backoff = Backoff(ceiling=4)
    async with running(WorkQueue(reconcile, workers=workers, backoff=backoff)) as queue:
        for name, delay, pause in steps:
            queue.add_after(("ns", name), delay)
            last[("ns", name)] = now()
            await asyncio.sleep(pause)
        await asyncio.sleep(400)
        assert queue.depth == 0
    assert reconcile.most_running <= workers
    for key, added in last.items():  # a reconcile started after the last request
        assert max(at for k, at in reconcile.started if k == key) >= added
