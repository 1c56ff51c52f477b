"""Three candidates for one Lease on an API server that fails at random: never two at once."""

import asyncio
import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from specdec.cluster import Transient
from specdec.controller.leader_election import Lease, LostError
from support.effort import examples
from unit.controller.clock import run
from unit.controller.leases import Server, candidate, work


class Chaos(Server):
    """Answers late, not at all, or does what was asked and then does not say so."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    @override
    async def pass_time(self) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.3, 2, 6]))
        if self._random.random() < 0.15:
            raise Transient("no answer")


async def life(lease: Lease, fate: random.Random) -> None:
    """Work, lose it, be stopped or be killed, and come back as somebody else would."""
    with contextlib.suppress(LostError, TimeoutError):
        async with asyncio.timeout(fate.uniform(5, 200)):
            await work(lease)
    if fate.random() < 0.5:
        await lease.release()


@settings(max_examples=examples(15))
@given(seed=st.integers(min_value=0, max_value=10**6))
def test_never_two_at_once_whatever_happens(seed: int) -> None:
    async def scenario() -> None:
        server, fate = Chaos(seed), random.Random(seed)
        current: dict[int, Lease] = {}
        held: set[str] = set()

        async def slot(number: int) -> None:
            for generation in range(1000):
                current[number] = candidate(server, f"{number}-{generation}")
                await life(current[number], fate)
                # A killed process is not at work, whatever its Lease says.
                del current[number]
                await asyncio.sleep(fate.uniform(0, 5))

        slots = [asyncio.create_task(slot(number)) for number in range(3)]
        for _ in range(2000):
            await asyncio.sleep(0.25)
            working = [lease.identity for lease in current.values() if lease.held]
            assert len(working) <= 1, working
            held.update(working)
        assert held, "somebody works now and then"
        for task in slots:
            task.cancel()
        await asyncio.gather(*slots, return_exceptions=True)

    run(scenario())
