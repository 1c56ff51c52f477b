"""The short version of `make campaign NAME=hostile`."""

import asyncio
from dataclasses import replace

import pytest

from campaigns import hostile
from campaigns.hostile_clients import BODIES, KINDS, TRAILERS, Client, post
from support.memory_limit import Peak

pytestmark = pytest.mark.slow

CLIENTS = 300


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["endpoint", "proxy"])
def test_hostile_clients_stop_no_answer_and_stay_within_the_memory_limit(name: str) -> None:
    running, outcome = asyncio.run(hostile.run(name, CLIENTS, seed=2))
    assert outcome.ends.total() == CLIENTS
    assert len({kind for kind, _ in outcome.ends}) > len(KINDS) * 0.9
    assert outcome.failures == []
    # The system needs some of the limit for the buffers of connections.
    assert running.peak.memory < 0.8 * running.limit


def peak(*clients: Client) -> tuple[int, list[str]]:
    """Return the memory that an endpoint needed for clients at a time, and their answers."""
    ends: list[str] = []

    async def attack() -> None:
        with hostile.program("endpoint", 1) as running:
            await hostile.started(running)
            before = Peak()
            before.update(running.process.pid)
            ends.extend(await asyncio.gather(*(client.run(running.port) for client in clients)))
            outcome = hostile.Outcome()
            await hostile.answered(running, outcome)
            assert outcome.failures == []
            running.peak.update(running.process.pid)
            needed.append(running.peak.memory - before.memory)

    needed: list[int] = []
    asyncio.run(attack())
    return needed[0], ends


@pytest.mark.parametrize("kind", ["numbers as messages", "parts", "stop", "tools", "keys"])
def test_one_body_of_many_values_needs_little_memory(kind: str) -> None:
    """A body of 4 MB needed 2.9 to 3.5 GB; 1 GiB is the limit of the container."""
    needed, ends = peak(replace(BODIES[kind]("tiny", 4_000_000), seconds=hostile.GOOD_SECONDS))
    assert ends == ["HTTP/1.1 400 Bad Request"]
    assert needed < 64 << 20


def test_bodies_that_stall_need_little_memory_together() -> None:
    """250 bodies of 4 MiB that stalled needed 1.13 GB."""
    stalled = post("/v1/completions", b" " * 4_190_000, 4_194_304)
    needed, _ = peak(*(Client(stalled, seconds=20.0) for _ in range(250)))
    assert needed < 256 << 20


@pytest.mark.parametrize("kind", ["trailers", "a long trailer", "a long name of a trailer"])
def test_long_trailers_need_little_memory(kind: str) -> None:
    """120 MB of trailers needed 2.4 GB."""
    client = replace(TRAILERS[kind]("tiny", 120_000_000), seconds=hostile.GOOD_SECONDS)
    needed, _ = peak(*[client] * 8)
    assert needed < 64 << 20
