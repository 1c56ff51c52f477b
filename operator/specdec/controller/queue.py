"""Keyed work queue: every key waits at most once, is worked by one worker, and backs off alone.

kopf hands over raw events in bursts; the queue turns them into few reconciles. A key added while
it is being worked is reconciled once more afterwards: no change is lost between read and write.
"""

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name of a resource."""


@dataclass(frozen=True)
class ReconcileResult:
    """What one reconcile of a key came to.

    `requeue_after` asks for another reconcile in so many seconds; `failed` makes the queue back
    off.
    """

    requeue_after: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Backoff:
    """Seconds before the n-th repetition: `first * 2**(n-1)`, at most `ceiling`, give or take
    `jitter` of itself so that keys that failed together do not come back together."""

    first: float = 1.0
    ceiling: float = 300.0
    jitter: float = 0.2

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after `failures` failures in a row (at least one)."""
        plain = min(self.ceiling, self.first * 2.0 ** min(failures - 1, 32))
        return plain * rng.uniform(1 - self.jitter, 1 + self.jitter)


@dataclass(frozen=True)
class Health:
    """Seconds since the queue last looked at its keys, and of the longest running reconcile."""

    idle_for: float
    longest_reconcile: float


class WorkQueue:
    """Runs `reconcile(key)` for added keys, at most `workers` at once and never two for one key.

    `limit` is the longest a reconcile may take, in seconds; a longer one is cancelled and counts
    as failed. Times come from the event loop's clock.
    """

    HEARTBEAT = 5.0
    TICK = 0.001  # the shortest sleep: a coarse clock must not make the loop spin

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[ReconcileResult]],
        *,
        workers: int = 8,
        backoff: Backoff | None = None,
        limit: float = 300.0,
        rng: random.Random | None = None,
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._limit = limit
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._active: dict[Key, tuple[float, asyncio.Task[None]]] = {}
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._beat: float | None = None

    @property
    def depth(self) -> int:
        """Keys that wait, now or for a later time."""
        return len(self._due)

    @property
    def active(self) -> frozenset[Key]:
        """Keys being worked."""
        return frozenset(self._active)

    def add(self, key: Key) -> None:
        """Ask for a reconcile as soon as a worker is free."""
        self.add_after(key, 0.0)

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a reconcile in `seconds`; of several wishes for one key the earliest counts.

        While a key keeps failing, a new event brings its next reconcile forward, but never closer
        than the first back-off: a reconcile that fails after writing must not drive itself.
        """
        if key in self._failures:
            seconds = max(seconds, self._backoff.first)
        due = asyncio.get_running_loop().time() + seconds
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        if key not in self._active:
            heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake.set()

    def health(self) -> Health:
        """How long ago the queue's own loop turned, and how long the slowest reconcile has run."""
        now = asyncio.get_running_loop().time()
        since = [started for started, _ in self._active.values()]
        idle = float("inf") if self._beat is None else now - self._beat
        return Health(idle, now - min(since, default=now))

    async def run(self) -> None:
        """Work until `stop`; returns when no reconcile is running any more."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._beat = loop.time()
            self._wake.clear()
            self._start_ready(loop)
            try:
                async with asyncio.timeout(self._pause(loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stop(self, grace: float = 20.0) -> None:
        """Start no reconcile, let running ones end within `grace` seconds, cancel the rest."""
        self._stopping = True
        self._wake.set()
        tasks = [task for _, task in self._active.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _pause(self, now: float) -> float:
        """Seconds until something may be ready, at most one heartbeat."""
        if not self._heap or len(self._active) >= self._workers:
            return self.HEARTBEAT
        return min(self.HEARTBEAT, max(self.TICK, self._heap[0][0] - now))

    def _start_ready(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._heap and len(self._active) < self._workers:
            due, _, key = self._heap[0]
            stale = self._due.get(key) != due or key in self._active
            if not stale and due > loop.time():
                return
            heapq.heappop(self._heap)
            if not stale:
                del self._due[key]
                task = loop.create_task(self._work(key), name="reconcile {}/{}".format(*key))
                self._active[key] = (loop.time(), task)

    async def _work(self, key: Key) -> None:
        try:
            async with asyncio.timeout(self._limit):
                result = await self._reconcile(key)
        except TimeoutError:
            logger.warning("the reconcile of %s/%s took more than %g s", *key, self._limit)
            result = ReconcileResult(failed=True)
        except Exception:
            logger.exception("the reconcile of %s/%s broke", *key)
            result = ReconcileResult(failed=True)
        finally:
            del self._active[key]
            self._wake.set()
        self._settle(key, result)

    def _settle(self, key: Key, result: ReconcileResult) -> None:
        if result.failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            wait: float | None = self._backoff.delay(self._failures[key], self._rng)
        else:
            self._failures.pop(key, None)
            wait = result.requeue_after
        if key in self._due:  # added meanwhile: it had no place in the heap while it was active
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        if wait is not None:
            self.add_after(key, wait)
