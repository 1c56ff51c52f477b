"""Three candidates for a Lease on an API server with random failures: at most one holder."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from specdec.cluster import Transient
from specdec.controller.leader_election import Lease, LeaseLostError
from support.simulated_clock import simulated_clock
from unit.controller.leases import Server, acquire_and_renew, candidate


class Chaos(Server):
    """Responds late or fails, before or after the write."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    @override
    async def pass_time(self) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.3, 2, 6]))
        if self._random.random() < 0.15:
            raise Transient("no answer")


async def life(lease: Lease, rng: random.Random) -> None:
    """Simulate a process that holds the Lease for a while, and then releases it or is killed."""
    with contextlib.suppress(LeaseLostError, TimeoutError):
        async with asyncio.timeout(rng.uniform(5, 200)):
            await acquire_and_renew(lease)
    if rng.random() < 0.5:
        await lease.release()


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(min_value=0, max_value=10**6))
@simulated_clock
async def test_never_two_holders_at_once(seed: int) -> None:
    server, rng = Chaos(seed), random.Random(seed)
    current: dict[int, Lease] = {}
    holders: set[str] = set()

    async def slot(number: int) -> None:
        for generation in range(1000):
            current[number] = candidate(server, f"{number}-{generation}")
            await life(current[number], rng)
            # A killed process is not active, even while its Lease lasts.
            del current[number]
            await asyncio.sleep(rng.uniform(0, 5))

    slots = [asyncio.create_task(slot(number)) for number in range(3)]
    for _ in range(2000):
        await asyncio.sleep(0.25)
        active = [lease.identity for lease in current.values() if lease.held]
        assert len(active) <= 1, active
        holders.update(active)
    assert holders, "some process must hold the Lease now and then"
    for task in slots:
        task.cancel()
    await asyncio.gather(*slots, return_exceptions=True)
