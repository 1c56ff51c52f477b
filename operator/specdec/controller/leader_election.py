"""Leader election: one of several operators holds a Lease (coordination.k8s.io/v1).

`standby` calls it. The rules are those of client-go, and guarantee at most one holder. Each
candidate uses only its own clock: a Lease has expired when its record stayed unchanged for its
whole duration. The holder stops if it could not renew the Lease for two thirds of the duration. So
clocks need not agree, and may run at rates that differ by a third. A holder that was frozen may
still try to write when it resumes; `standby.write_fence` prevents that.
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
# Shares of the Lease's duration; client-go has 10 s and 2 s for a duration of 15 s.
RENEW_DEADLINE, RENEW_PERIOD = 2 / 3, 2 / 15
# A standby reads the Lease twice per renewal period. So with a duration of 15 s it takes a
# released Lease within 1.5 s.
RETRY_PERIOD = 1 / 15
JITTER = 1.2
# Short, because without a release the next holder only waits until the Lease expires.
RELEASE_TIMEOUT = 5.0


class LeaseLostError(Exception):
    """Another operator holds the Lease, or may hold it: this one must stop at once."""


@dataclass
class _Record:
    """The last spec of the Lease, and the event loop's time at which it was first seen."""

    spec: Mapping[str, Any]
    first_seen: float


class Lease:
    """A candidate for one Lease; durations are in seconds."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, identity: str, duration: float = 15
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._metadata = {"namespace": namespace, "name": name}
        self._duration = duration
        self._record: _Record | None = None
        self._renewed = -math.inf

    @override
    def __str__(self) -> str:
        return f"Lease {self._metadata['namespace']}/{self._metadata['name']}"

    @property
    def held(self) -> bool:
        """Whether this candidate certainly holds the Lease: while true, no other can take it."""
        return _now() < self._deadline

    @property
    def _deadline(self) -> float:
        return self._renewed + self._duration * RENEW_DEADLINE

    async def acquire(self) -> None:
        """Wait until this candidate holds the Lease.

        Raises:
            Rejected: the API server refuses access to the Lease, which no retry changes.
        """
        logged = ""
        while True:
            try:
                if await self._try_acquire_or_renew():
                    break
                message = f"standing by: {self._holder()} holds {self}"
            except Conflict:
                message = logged  # another candidate was faster; the next read shows which
            except Rejected:
                raise
            except ClusterError as error:
                message = f"standing by: {error}"
            if message != logged:
                logger.info("%s", message)
            logged = message
            await asyncio.sleep(self._retry_seconds())
        # The last read came before this candidate wrote its own name.
        previous = self._holder()
        cause = f"{previous} did not renew it in time" if previous else "it was free"
        logger.info("active: %s holds %s, %s", self.identity, self, cause)

    async def renew(self) -> None:
        """Renew the Lease until it is lost.

        Raises:
            LeaseLostError: another candidate holds it, or it could not be renewed in time.
        """
        while True:
            await asyncio.sleep(self._duration * RENEW_PERIOD)
            errors: list[ClusterError] = []
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._renew_once(errors)
            except TimeoutError as error:
                seconds = self._duration * RENEW_DEADLINE
                cause = str(errors[-1]) if errors else "the API server does not answer"
                message = f"it could not be renewed for {seconds:g} s: {cause}"
                raise LeaseLostError(message) from error

    async def release(self) -> None:
        """Free the Lease, so that no other candidate waits for its expiry; never raises."""
        self._renewed = -math.inf
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._clear_holder()
        except (ClusterError, TimeoutError) as error:
            logger.warning(
                "%s was not released, the next operator waits %g s for it: %s",
                self,
                self._duration,
                str(error) or "no response",
            )

    async def _clear_holder(self) -> None:
        while (live := await self._read()) is not None and self._holder() == self.identity:
            # client-go marks a free Lease in this way; the API does not allow a duration of 0.
            free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _timestamp()}
            # A cancelled renewal may still arrive; then read the Lease and clear it again.
            with contextlib.suppress(Conflict):
                await self._cluster.update({**live, "spec": {**live["spec"], **free}})

    async def _renew_once(self, errors: list[ClusterError]) -> None:
        """Retry until the Lease is renewed, and collect the errors; raises LeaseLostError."""
        while True:
            try:
                if await self._try_acquire_or_renew():
                    return
            except ClusterError as error:
                errors.append(error)
            else:
                raise LeaseLostError(f"{self._holder()} holds it")
            await asyncio.sleep(self._retry_seconds())

    def _retry_seconds(self) -> float:
        # With jitter, so that candidates do not send requests at the same time.
        factor = random.uniform(1, JITTER)  # noqa: S311 - not a secret
        return self._duration * RETRY_PERIOD * factor

    async def _try_acquire_or_renew(self) -> bool:
        """One attempt; returns whether this candidate holds the Lease now.

        Raises:
            Conflict: another candidate wrote between our read and our write.
            ClusterError: a request failed, or took too long to leave time for a retry.
        """
        timeout = self._duration * RENEW_DEADLINE / 2
        # Other candidates count from the time at which they see our write, which is later.
        started = _now()
        try:
            async with asyncio.timeout(timeout):
                acquired = await self._write_if_available()
        except TimeoutError as error:
            raise Transient(f"no response about {self} within {timeout:g} s") from error
        if acquired:
            self._renewed = started
        return acquired

    async def _write_if_available(self) -> bool:
        """Read the Lease, and write this candidate into it unless another one holds it."""
        live = await self._read()
        if live is None:
            head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": self._metadata}
            if not await self._cluster.create({**head, "spec": self._desired_spec({})}):
                raise Conflict(f"{self} was created by another operator")
            return True
        if self._holder() != self.identity and not self._expired():
            return False
        spec = {**live["spec"], **self._desired_spec(live["spec"])}
        try:
            await self._cluster.update({**live, "spec": spec})
        except Missing as error:
            raise Conflict(f"{self} was deleted since it was read") from error
        return True

    async def _read(self) -> dict[str, Any] | None:
        """The live Lease; records when this spec was first seen."""
        live = await self._cluster.get(API_VERSION, KIND, **self._metadata)
        if live is None:
            self._record = None
            return None
        live = {"apiVersion": API_VERSION, "kind": KIND, **live, "spec": live.get("spec") or {}}
        if self._record is None or self._record.spec != live["spec"]:
            self._record = _Record(live["spec"], _now())
        return live

    def _holder(self) -> str:
        return str(self._record.spec.get("holderIdentity") or "") if self._record else ""

    def _expired(self) -> bool:
        """Whether the last record has no holder, or its holder did not renew it in time."""
        if self._record is None or not self._holder():
            return True
        duration = self._record.spec.get("leaseDurationSeconds") or self._duration
        return _now() >= self._record.first_seen + float(duration)

    def _desired_spec(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a Lease that this candidate holds."""
        timestamp = _timestamp()
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration),
            "renewTime": timestamp,
        }
        if old.get("holderIdentity") == self.identity:
            return spec
        transitions = int(old.get("leaseTransitions") or 0) + 1 if old else 0
        return {**spec, "acquireTime": timestamp, "leaseTransitions": transitions}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
