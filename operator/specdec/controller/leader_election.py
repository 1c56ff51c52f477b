"""Which of several operators works: the one that holds a Lease (coordination.k8s.io/v1).

The rules are those of client-go's leader election. Only the local clock counts: another's lease is
over when it was seen unchanged for as long as it says, whatever the times in it are, and a holder
gives up well before that, so that clocks may run apart by a third but need not agree. A holder
that was frozen for longer writes nothing more when it wakes (`standby.fence`), but for a request
that it had begun before: a Lease itself does not fence.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from specdec.cluster import Cluster, ClusterError, Conflict, Missing, Rejected, Transient

logger = logging.getLogger(__name__)

API_VERSION, KIND = "coordination.k8s.io/v1", "Lease"
# client-go's 15, 10 and 2 seconds as parts of the first.
GIVE_UP, RENEW = 2 / 3, 2 / 15
# Twice as often as it is renewed: what is released is taken within a second and a half.
LOOK = 1 / 15
JITTER = 1.2
# A release is a courtesy: the next holder comes without it, only later.
RELEASE_PATIENCE = 5.0


class LostError(Exception):
    """The Lease is another's, or may be: whoever held it must stop at once."""


@dataclass
class _Seen:
    """A record as it was read, and when it was first seen so (seconds of the loop's clock)."""

    spec: Mapping[str, Any]
    since: float


class Lease:
    """A candidate for one Lease; durations are seconds."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, identity: str, seconds: float = 15
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._place = {"namespace": namespace, "name": name}
        self._seconds = seconds
        self._seen: _Seen | None = None
        self._renewed = -math.inf

    @override
    def __str__(self) -> str:
        return f"Lease {self._place['namespace']}/{self._place['name']}"

    @property
    def held(self) -> bool:
        """Whether it is ours for certain: nobody else takes it before this turns false."""
        return _now() < self._renewed + self._seconds * GIVE_UP

    async def acquire(self) -> None:
        """Wait until it is ours.

        Raises:
            Rejected: the API server does not let us have it; repeating would not help.
        """
        told = ""
        while True:
            try:
                if await self._take():
                    break
                word = f"standing by: {self._holder()} holds {self}"
            except Conflict:
                word = told  # another was quicker: the next look says who
            except Rejected:
                raise
            except ClusterError as error:
                word = f"standing by: {error}"
            if word != told:
                logger.info("%s", word)
            told = word
            await asyncio.sleep(self._pause())
        before = self._holder()
        how = f"{before} was silent for too long" if before else "it was free"
        logger.info("working: %s holds %s, %s", self.identity, self, how)

    async def keep(self) -> None:
        """Renew it for ever.

        Raises:
            LostError: another has it, or it could not be renewed in time.
        """
        while True:
            await asyncio.sleep(self._seconds * RENEW)
            trouble: list[ClusterError] = []
            try:
                async with asyncio.timeout_at(self._renewed + self._seconds * GIVE_UP):
                    await self._renew(trouble)
            except TimeoutError as error:
                last = f": {trouble[-1]}" if trouble else ": the API server does not answer"
                raise LostError(
                    f"it could not be renewed for {self._seconds * GIVE_UP:g} s{last}"
                ) from error

    async def release(self) -> None:
        """Give it back, so that another need not wait until it is over; never raises."""
        self._renewed = -math.inf
        try:
            async with asyncio.timeout(RELEASE_PATIENCE):
                await self._give_back()
        except (ClusterError, TimeoutError) as error:
            logger.warning(
                "%s was not released, another operator waits %g s for it: %s",
                self,
                self._seconds,
                str(error) or "no answer",
            )

    async def _give_back(self) -> None:
        while (live := await self._read()) is not None and self._holder() == self.identity:
            # client-go's mark of a free lease; a duration of 0 is not allowed.
            gone = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _stamp()}
            # A renewal that was broken off may still arrive.
            with contextlib.suppress(Conflict):
                await self._cluster.update({**live, "spec": {**live["spec"], **gone}})

    async def _renew(self, trouble: list[ClusterError]) -> None:
        while True:
            try:
                if await self._take():
                    return
            except ClusterError as error:
                trouble.append(error)
            else:
                raise LostError(f"{self._holder()} has it")
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        # Not all candidates at once.
        return self._seconds * LOOK * random.uniform(1, JITTER)  # noqa: S311 - no secret

    async def _take(self) -> bool:
        """Look at it, and write ourselves into it if it is ours or free; whether it is ours now.

        Raises:
            Conflict: another wrote between the look and the write.
            ClusterError: the API server refuses, or did not answer in time for another try.
        """
        patience = self._seconds * GIVE_UP / 2
        # From before the request: others count from when they see what it wrote.
        asked = _now()
        try:
            async with asyncio.timeout(patience):
                taken = await self._look()
        except TimeoutError as error:
            raise Transient(f"no answer about {self} within {patience:g} s") from error
        if taken:
            self._renewed = asked
        return taken

    async def _look(self) -> bool:
        live = await self._read()
        if live is None:
            head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": self._place}
            if not await self._cluster.create({**head, "spec": self._ours({})}):
                raise Conflict(f"{self} was made meanwhile")
            return True
        if self._holder() != self.identity and not self._over():
            return False
        spec = {**live["spec"], **self._ours(live["spec"])}
        try:
            await self._cluster.update({**live, "spec": spec})
        except Missing as error:
            raise Conflict(f"{self} was deleted meanwhile") from error
        return True

    async def _read(self) -> dict[str, Any] | None:
        """The Lease as it is, noting since when it is so."""
        live = await self._cluster.get(API_VERSION, KIND, **self._place)
        if live is None:
            self._seen = None
            return None
        live = {"apiVersion": API_VERSION, "kind": KIND, **live, "spec": live.get("spec") or {}}
        if self._seen is None or self._seen.spec != live["spec"]:
            self._seen = _Seen(live["spec"], _now())
        return live

    def _holder(self) -> str:
        return str(self._seen.spec.get("holderIdentity") or "") if self._seen else ""

    def _over(self) -> bool:
        """Whether nobody holds what was seen last, or its holder was silent for too long."""
        if self._seen is None or not self._holder():
            return True
        lasts = self._seen.spec.get("leaseDurationSeconds") or self._seconds
        return _now() >= self._seen.since + float(lasts)

    def _ours(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """What a record says while it is ours; its times are for people to read."""
        stamp = _stamp()
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._seconds),
            "renewTime": stamp,
        }
        if old.get("holderIdentity") == self.identity:
            return spec
        transitions = int(old.get("leaseTransitions") or 0) + 1 if old else 0
        return {**spec, "acquireTime": stamp, "leaseTransitions": transitions}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
