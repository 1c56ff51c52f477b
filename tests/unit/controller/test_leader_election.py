"""Leader election on a simulated clock and a failing API server has one holder at a time."""

import asyncio
import random
from typing import Any

import pytest
from typing_extensions import override

from specdec.cluster import Rejected, Transient
from specdec.controller.leader_election import LeaseLostError
from support.fake_cluster import Json
from support.simulated_clock import run, simulated_clock
from unit.controller.leases import Server, acquire_and_renew, candidate, now


@simulated_clock
async def test_first_candidate_creates_and_renews_the_lease() -> None:
    server = Server()
    lease = candidate(server, "one")
    await lease.acquire()
    assert now() == 0
    first = dict(server.spec)
    assert first["holderIdentity"] == "one"
    assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (15, 0)
    renewal = asyncio.create_task(lease.renew())
    await asyncio.sleep(60)
    assert lease.held
    assert server.spec["acquireTime"] == first["acquireTime"]
    assert server.spec["renewTime"] > first["renewTime"]
    assert server.calls.count(("update", "Lease", "operator")) == 29
    renewal.cancel()


@simulated_clock
async def test_standby_writes_nothing_while_the_lease_is_renewed() -> None:
    server = Server()
    one = asyncio.create_task(acquire_and_renew(candidate(server, "one")))
    await asyncio.sleep(1)
    two = candidate(server, "two")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await two.acquire()
    assert not two.held
    assert server.holder() == "one"
    one.cancel()


@pytest.mark.parametrize("alive", [0.5, 7.3, 60.0])
@simulated_clock
async def test_dead_holder_is_replaced_when_its_lease_expires_and_not_before(alive: float) -> None:
    server = Server()
    one = asyncio.create_task(acquire_and_renew(candidate(server, "one")))
    await asyncio.sleep(0.1)
    two = asyncio.create_task(candidate(server, "two").acquire())
    await asyncio.sleep(alive)
    one.cancel()
    renewed = server.spec["renewTime"]
    since = now()
    await two
    assert server.spec["renewTime"] > renewed
    # The holder renewed up to 2 s before its death; the candidate retries every 1 to 1.2 s.
    assert 13 - 0.1 <= now() - since <= 15 + 2.4
    assert server.spec["leaseTransitions"] == 1


@simulated_clock
async def test_released_lease_is_taken_within_two_seconds() -> None:
    server = Server(latency=0.1)
    one = candidate(server, "one")
    await one.acquire()
    two = asyncio.create_task(candidate(server, "two").acquire())
    await asyncio.sleep(random.uniform(3, 9))
    await one.release()
    assert not one.held
    # The other candidate may take the Lease before the response to the release arrives.
    assert server.holder() in ("", "two")
    since = now()
    await two
    assert now() - since < 2


@simulated_clock
async def test_late_renewal_does_not_undo_a_release() -> None:
    class Late(Server):
        @override
        async def get(self, *args: Any, **kwargs: Any) -> Json | None:
            live = await super().get(*args, **kwargs)
            if live is not None and self.calls.count(("get", "Lease", "operator")) == 2:
                self.put(live)
            return live

    server = Late()
    lease = candidate(server, "one")
    await lease.acquire()
    await lease.release()
    assert server.holder() == ""
    assert server.calls.count(("update", "Lease", "operator")) == 2


def test_release_concerns_only_the_own_lease_and_logs_failures(
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
        server.latency = 1000
        since = now()
        await candidate(server, "one").release()
        assert now() - since == pytest.approx(5)

    run(scenario())
    assert caplog.text.count("Lease system/operator was not released") == 2


@simulated_clock
async def test_holder_that_cannot_renew_stops_before_another_may_take_it() -> None:
    server = Server()
    lease = candidate(server, "one")
    await lease.acquire()
    renewal = asyncio.create_task(lease.renew())
    await asyncio.sleep(20.5)
    last = now() - 0.5
    server.fail["update", "Lease"] = Transient("the API server answers 503")
    with pytest.raises(LeaseLostError, match="for 10 s: the API server answers 503"):
        await renewal
    assert now() == pytest.approx(last + 10)
    assert not lease.held


@simulated_clock
async def test_hanging_request_does_not_outlive_the_lease() -> None:
    server = Server()
    lease = candidate(server, "one")
    await lease.acquire()
    server.latency = 10_000
    with pytest.raises(LeaseLostError, match="no response about Lease system/operator within 5 s"):
        await lease.renew()
    assert now() == pytest.approx(10)


@simulated_clock
async def test_temporary_errors_do_not_lose_the_lease() -> None:
    server = Server()
    lease = candidate(server, "one")
    await lease.acquire()
    renewal = asyncio.create_task(lease.renew())
    for _ in range(10):
        server.fail["get", "Lease"] = Transient("no answer")
        await asyncio.sleep(6)
        server.fail.clear()
        await asyncio.sleep(6)
        assert lease.held
    # The holder keeps the Lease when a user labels or deletes the object.
    server.put(server.objects["Lease", "operator"])
    await asyncio.sleep(6)
    del server.objects["Lease", "operator"]
    await asyncio.sleep(6)
    assert server.holder() == "one"
    assert not renewal.done()
    renewal.cancel()


@simulated_clock
async def test_holder_stops_at_its_next_renewal_when_another_holds_the_lease() -> None:
    server = Server()
    lease = candidate(server, "one")
    await lease.acquire()
    server.spec["holderIdentity"] = "two"
    with pytest.raises(LeaseLostError, match=r"^two holds it$"):
        await lease.renew()
    assert now() == pytest.approx(2)


def test_standby_logs_its_holder_once_and_ends_when_access_is_forbidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        server = Server()
        holder = asyncio.create_task(acquire_and_renew(candidate(server, "one")))
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
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "active: one holds Lease system/operator, it was free",
        "standing by: one holds Lease system/operator",
        "standing by: no answer",
    ]


@simulated_clock
async def test_clock_of_another_machine_is_ignored() -> None:
    """Times in the Lease have no effect, even if they are years in the past or future."""
    server = Server()
    for stamp in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": stamp}
        server.put({"kind": "Lease", "metadata": {"name": "operator"}, "spec": spec})
        since = now()
        await candidate(server, "two").acquire()
        assert 15 <= now() - since <= 16.2


@simulated_clock
async def test_fields_of_other_clients_are_kept() -> None:
    server = Server()
    spec = {"holderIdentity": "", "strategy": "OldestEmulationVersion"}
    meta = {"name": "operator", "labels": {"mine": "yes"}}
    server.put({"kind": "Lease", "metadata": meta, "spec": spec})
    await candidate(server, "one").acquire()
    assert server.spec["strategy"] == "OldestEmulationVersion"
    assert server.objects["Lease", "operator"]["metadata"]["labels"] == {"mine": "yes"}
