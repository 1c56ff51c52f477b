"""Who works: one holder at a time, on a clock of the test's own and an API server that fails."""

import asyncio
import random
from typing import Any

import pytest
from typing_extensions import override

from specdec.cluster import Rejected, Transient
from specdec.controller.leader_election import LostError
from unit.controller.clock import run
from unit.controller.fakes import Json
from unit.controller.leases import Server, candidate, now, work


def test_the_first_makes_it_and_renews_it() -> None:
    async def scenario() -> None:
        server = Server()
        lease = candidate(server, "one")
        await lease.acquire()
        assert now() == 0
        first = dict(server.spec)
        assert first["holderIdentity"] == "one"
        assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (15, 0)
        keeper = asyncio.create_task(lease.keep())
        await asyncio.sleep(60)
        assert lease.held
        assert server.spec["acquireTime"] == first["acquireTime"]
        assert server.spec["renewTime"] > first["renewTime"]
        assert server.calls.count(("update", "Lease", "operator")) == 29
        keeper.cancel()

    run(scenario())


def test_another_stands_by_while_it_is_renewed_and_writes_nothing() -> None:
    async def scenario() -> None:
        server = Server()
        one = asyncio.create_task(work(candidate(server, "one")))
        await asyncio.sleep(1)
        two = candidate(server, "two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await two.acquire()
        assert not two.held
        assert server.holder() == "one"
        one.cancel()

    run(scenario())


@pytest.mark.parametrize("alive", [0.5, 7.3, 60.0])
def test_a_dead_holder_is_replaced_after_what_it_promised_and_not_before(alive: float) -> None:
    async def scenario() -> None:
        server = Server()
        one = asyncio.create_task(work(candidate(server, "one")))
        await asyncio.sleep(0.1)
        two = asyncio.create_task(candidate(server, "two").acquire())
        await asyncio.sleep(alive)
        one.cancel()
        renewed = server.spec["renewTime"]
        since = now()
        await two
        assert server.spec["renewTime"] > renewed
        # It renewed up to 2 s before it died; the other looks every 1 to 1.2 s.
        assert 13 - 0.1 <= now() - since <= 15 + 2.4
        assert server.spec["leaseTransitions"] == 1

    run(scenario())


def test_what_is_released_is_taken_within_two_seconds() -> None:
    async def scenario() -> None:
        server = Server(takes=0.1)
        one = candidate(server, "one")
        await one.acquire()
        two = asyncio.create_task(candidate(server, "two").acquire())
        await asyncio.sleep(random.uniform(3, 9))
        await one.release()
        assert not one.held
        # The other may have been quicker than the answer to the release.
        assert server.holder() in ("", "two")
        since = now()
        await two
        assert now() - since < 2

    run(scenario())


def test_a_renewal_that_arrives_late_does_not_keep_it() -> None:
    class Late(Server):
        @override
        async def get(self, *place: Any, **named: Any) -> Json | None:
            found = await super().get(*place, **named)
            if found is not None and self.calls.count(("get", "Lease", "operator")) == 2:
                self.put(found)
            return found

    async def scenario() -> None:
        server = Late()
        lease = candidate(server, "one")
        await lease.acquire()
        await lease.release()
        assert server.holder() == ""
        assert server.calls.count(("update", "Lease", "operator")) == 2

    run(scenario())


def test_only_the_own_lease_is_released_and_failing_to_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        server = Server()
        await candidate(server, "one").acquire()
        await candidate(server, "two").release()
        assert server.holder() == "one"
        server.fail["get", "Lease"] = Transient("no answer")
        await candidate(server, "one").release()
        server.fail.clear()
        server.takes = 1000
        since = now()
        await candidate(server, "one").release()
        assert now() - since == pytest.approx(5)

    run(scenario())
    assert caplog.text.count("Lease system/operator was not released") == 2


def test_a_holder_that_cannot_renew_gives_up_before_another_may_take_it() -> None:
    async def scenario() -> None:
        server = Server()
        lease = candidate(server, "one")
        await lease.acquire()
        keeper = asyncio.create_task(lease.keep())
        await asyncio.sleep(20.5)
        last = now() - 0.5
        server.fail["update", "Lease"] = Transient("the API server answers 503")
        with pytest.raises(LostError, match="for 10 s: the API server answers 503"):
            await keeper
        assert now() == pytest.approx(last + 10)
        assert not lease.held

    run(scenario())


def test_a_request_that_hangs_does_not_outlive_the_lease() -> None:
    async def scenario() -> None:
        server = Server()
        lease = candidate(server, "one")
        await lease.acquire()
        server.takes = 10_000
        with pytest.raises(LostError, match="no answer about Lease system/operator within 5 s"):
            await lease.keep()
        assert now() == pytest.approx(10)

    run(scenario())


def test_trouble_that_passes_costs_nothing() -> None:
    async def scenario() -> None:
        server = Server()
        lease = candidate(server, "one")
        await lease.acquire()
        keeper = asyncio.create_task(lease.keep())
        for _ in range(10):
            server.fail["get", "Lease"] = Transient("no answer")
            await asyncio.sleep(6)
            server.fail.clear()
            await asyncio.sleep(6)
            assert lease.held
        # Somebody labels it, or deletes it: it is ours nevertheless.
        server.put(server.objects["Lease", "operator"])
        await asyncio.sleep(6)
        del server.objects["Lease", "operator"]
        await asyncio.sleep(6)
        assert server.holder() == "one"
        assert not keeper.done()
        keeper.cancel()

    run(scenario())


def test_a_lease_that_was_taken_ends_the_holder_at_its_next_look() -> None:
    async def scenario() -> None:
        server = Server()
        lease = candidate(server, "one")
        await lease.acquire()
        server.spec["holderIdentity"] = "two"
        with pytest.raises(LostError, match=r"^two has it$"):
            await lease.keep()
        assert now() == pytest.approx(2)

    run(scenario())


def test_a_standby_says_once_for_whom_it_waits_and_ends_when_it_may_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        server = Server()
        holder = asyncio.create_task(work(candidate(server, "one")))
        await asyncio.sleep(0.1)
        standby = asyncio.create_task(candidate(server, "two").acquire())
        await asyncio.sleep(100)
        server.fail["get", "Lease"] = Transient("no answer")
        await asyncio.sleep(5)
        server.fail["get", "Lease"] = Rejected(403, "Lease operator", "forbidden")
        with pytest.raises(Rejected, match="forbidden"):
            await standby
        holder.cancel()

    run(scenario())
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "working: one holds Lease system/operator, it was free",
        "standing by: one holds Lease system/operator",
        "standing by: no answer",
    ]


def test_the_clock_of_another_machine_does_not_count() -> None:
    """Times in a record years ago or ahead neither free it nor keep it."""

    async def scenario() -> None:
        server = Server()
        for stamp in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
            spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": stamp}
            server.put({"kind": "Lease", "metadata": {"name": "operator"}, "spec": spec})
            since = now()
            await candidate(server, "two").acquire()
            assert 15 <= now() - since <= 16.2

    run(scenario())


def test_fields_of_others_stay() -> None:
    async def scenario() -> None:
        server = Server()
        spec = {"holderIdentity": "", "strategy": "OldestEmulationVersion"}
        meta = {"name": "operator", "labels": {"mine": "yes"}}
        server.put({"kind": "Lease", "metadata": meta, "spec": spec})
        await candidate(server, "one").acquire()
        assert server.spec["strategy"] == "OldestEmulationVersion"
        assert server.objects["Lease", "operator"]["metadata"]["labels"] == {"mine": "yes"}

    run(scenario())
