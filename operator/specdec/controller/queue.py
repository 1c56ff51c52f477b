"""The work queue: it turns bursts of events into few reconciles, at most one per key at a time.

`Runtime` adds the key of a resource for each event; workers call the reconcile function. A key
that is added during its own reconcile is reconciled once more afterwards, so no change is lost.
Failing keys back off exponentially, each on its own.
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
class Result:
    """The result of one reconcile.

    Attributes:
        requeue_after: seconds until the next reconcile; None when events will trigger it.
        failed: whether the reconcile failed; the queue then requeues the key with back-off.
    """

    requeue_after: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off in seconds: `first * 2**(failures - 1)`, at most `ceiling`.

    The delay varies by the share `jitter`, so that keys that failed together retry separately.
    """

    first: float = 1.0
    ceiling: float = 300.0
    jitter: float = 0.2

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after `failures` failures in a row (at least one)."""
        plain = min(self.ceiling, self.first * 2.0 ** min(failures - 1, 32))
        return plain * rng.uniform(1 - self.jitter, 1 + self.jitter)


@dataclass(frozen=True)
class Health:
    """The state of the queue for the probe.

    Attributes:
        idle_seconds: time since the last iteration of the queue's loop.
        longest_reconcile_seconds: running time of the oldest running reconcile.
    """

    idle_seconds: float
    longest_reconcile_seconds: float


class WorkQueue:
    """Runs `reconcile(key)` for added keys, in at most `workers` tasks and one per key.

    A reconcile that takes longer than `timeout` seconds is cancelled and counts as failed. All
    times are those of the event loop's clock.
    """

    HEARTBEAT = 5.0
    SHORTEST_SLEEP = 0.001  # a coarse clock must not cause a busy loop

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[Result]],
        *,
        workers: int = 8,
        backoff: Backoff | None = None,
        timeout: float = 300.0,
        rng: random.Random | None = None,
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._timeout = timeout
        self._rng = rng or random.Random()  # noqa: S311 - jitter is not a secret
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._active: dict[Key, tuple[float, asyncio.Task[None]]] = {}
        self._failures: dict[Key, int] = {}
        self._started: dict[Key, float] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._last_iteration: float | None = None

    @property
    def depth(self) -> int:
        """The number of queued keys, whether due now or later."""
        return len(self._due)

    @property
    def active(self) -> frozenset[Key]:
        """The keys whose reconcile runs now."""
        return frozenset(self._active)

    def add(self, key: Key) -> None:
        """Reconcile a key as soon as a worker is free."""
        self.add_after(key, 0.0)

    def add_after(self, key: Key, seconds: float, apart: float = 0.0) -> None:
        """Reconcile a key in `seconds`; of several requests for a key the earliest counts.

        The reconcile starts at least `apart` seconds after the start of the last one.

        An event may shorten the wait of a failing key, but not below the first back-off. Otherwise
        a reconcile that fails after a write would trigger itself.
        """
        if key in self._failures:
            seconds = max(seconds, self._backoff.first)
        due = max(
            asyncio.get_running_loop().time() + seconds,
            self._started.get(key, -apart) + apart,
        )
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        if key not in self._active:
            heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake.set()

    def forget(self, key: Key) -> None:
        """Drop what is remembered about a deleted resource."""
        self._started.pop(key, None)

    def health(self) -> Health:
        """The state of the queue for the probe."""
        now = asyncio.get_running_loop().time()
        oldest_start = min((started for started, _ in self._active.values()), default=now)
        last = self._last_iteration
        return Health(float("inf") if last is None else now - last, now - oldest_start)

    async def run(self) -> None:
        """Start reconciles as they become due, until `stop` is called."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._last_iteration = loop.time()
            self._wake.clear()
            self._start_due(loop)
            try:
                async with asyncio.timeout(self._sleep_seconds(loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stop(self, grace: float = 20.0) -> None:
        """Start no new reconcile, and cancel those that still run after `grace` seconds."""
        self._stopping = True
        self._wake.set()
        tasks = [task for _, task in self._active.values()]
        if not tasks:
            return
        _, unfinished = await asyncio.wait(tasks, timeout=grace)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _sleep_seconds(self, now: float) -> float:
        """Seconds until a key may be due, at most one heartbeat."""
        if not self._heap or len(self._active) >= self._workers:
            return self.HEARTBEAT
        return min(self.HEARTBEAT, max(self.SHORTEST_SLEEP, self._heap[0][0] - now))

    def _start_due(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._heap and len(self._active) < self._workers:
            due, _, key = self._heap[0]
            # The key was rescheduled since, or it runs and `_requeue` pushes it again.
            stale = self._due.get(key) != due or key in self._active
            if not stale and due > loop.time():
                return
            heapq.heappop(self._heap)
            if not stale:
                del self._due[key]
                task = loop.create_task(self._run_one(key), name="reconcile {}/{}".format(*key))
                self._started[key] = loop.time()
                self._active[key] = (loop.time(), task)

    async def _run_one(self, key: Key) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._reconcile(key)
        except TimeoutError:
            logger.warning("%s/%s: the reconcile took more than %g s", *key, self._timeout)
            result = Result(failed=True)
        except Exception:
            logger.exception("%s/%s: the reconcile raised an exception", *key)
            result = Result(failed=True)
        finally:
            del self._active[key]
            self._wake.set()
        self._requeue(key, result)

    def _requeue(self, key: Key, result: Result) -> None:
        delay = result.requeue_after
        if result.failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            delay = self._backoff.delay(self._failures[key], self._rng)
        else:
            self._failures.pop(key, None)
        # The key was added during its reconcile, when `add_after` does not put it into the heap.
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        if delay is not None:
            self.add_after(key, delay)
