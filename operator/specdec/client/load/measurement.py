"""Run a benchmark: at each level, arms take turns, and concurrent clients send a turn's requests.

`specdec bench` and the benchmark Job call `measure`. Every arm sends the same prompts with the
same seeds. An interrupted run still yields a report of the completed requests.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from specdec.client import metrics
from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.client.load import summary
from specdec.client.load.endpoint import Endpoint, LoadClient
from specdec.client.load.exchange import Exchange, sample, undisturbed
from specdec.client.load.opened import Protocol, endpoint
from specdec.client.load.report import Ended, Report
from specdec.client.load.requests import Requests, service
from specdec.client.load.settings import Settings
from specdec.client.load.summary import Totals, Turn
from specdec.client.same_service import refuse_same
from specdec.servers.encoding import Requests as Encoding

# The requests of an arm are split into turns, so that a drift of the machine affects all arms.
_TURNS = 4
# After this many connection errors in a row, the server is unreachable and not just one pod.
_MAX_UNREACHABLE = 3


@dataclass(frozen=True)
class Progress:
    """The progress of a run: `done` of `total` requests, including warm-up."""

    concurrency: int
    draft_tokens: int | None
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]


async def measure(
    connection: Connection,
    settings: Settings,
    *,
    metrics_url: str | None = None,
    on_progress: ProgressCallback | None = None,
    protocol: Protocol = "http",
    baseline: Connection | None = None,
    requests: Encoding | None = None,
    baseline_requests: Encoding | None = None,
) -> Report:
    """Run a complete benchmark; see `Measurement`."""
    measurement = Measurement(
        connection,
        settings,
        metrics_url=metrics_url,
        on_progress=on_progress,
        protocol=protocol,
        baseline=baseline,
        requests=requests,
        baseline_requests=baseline_requests,
    )
    await measurement.run()
    return measurement.report()


class Measurement:
    """A benchmark of one server; `report` is available at any time.

    The arms of a level alternate on the same connections, so that all of them use the same pod,
    and see the same load and drift. A baseline with its own service has its own connections. Every
    other turn reverses their order. While a clock runs, messages are only recorded; they are
    decoded between turns.

    Args:
        connection: to the server.
        settings: of the run.
        metrics_url: `host:port` of the server's metrics, for energy, and for acceptance if the
            answers do not report it. The metrics include other users of the server.
        on_progress: called after every request.
        protocol: of the endpoint. HTTP gives times closer to those of the server.
        baseline: to the server of the baseline; by default the same server, without drafts.
        requests, baseline_requests: how each server is asked; None finds that.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        *,
        metrics_url: str | None = None,
        on_progress: ProgressCallback | None = None,
        protocol: Protocol = "http",
        baseline: Connection | None = None,
        requests: Encoding | None = None,
        baseline_requests: Encoding | None = None,
    ) -> None:
        if baseline is not None and settings.single:
            raise BadRequestError("single excludes a baseline; leave out one of them")
        self._connection = connection
        self._baseline = baseline
        self._requests, self._baseline_requests = requests, baseline_requests
        self._protocol: Protocol = protocol
        self._settings = settings
        self._metrics_url = metrics_url
        self._on_progress = on_progress or (lambda _: None)
        self._started = datetime.now(UTC)
        self._start_seconds = time.monotonic()
        # By concurrency and draft length.
        self._turns: dict[int, dict[int | None, list[Turn]]] = {}
        self._ended: Ended = "interrupted"
        self._message = "the run was interrupted"
        self._streamed = True
        self._unreachable_in_a_row = 0
        self._done = 0
        self._total = len(settings.arms) * sum(
            settings.requests_at(level) + _warmup(settings, level)
            for level in settings.concurrency
        )

    async def run(self) -> None:
        """Measure all levels; if the server becomes unreachable, the report is marked partial.

        Raises:
            UnreachableError: the first connection failed.
            RefusedError, BadRequestError: the first request of an arm failed.
        """
        async with AsyncExitStack() as stack:
            opened = endpoint(self._connection, self._protocol, self._requests)
            server = await stack.enter_async_context(opened)
            baseline = server
            if self._baseline is not None:
                opened = endpoint(self._baseline, self._protocol, self._baseline_requests)
                baseline = await stack.enter_async_context(opened)
            requests = await self._prepare(server, baseline)
            try:
                for concurrency in self._settings.concurrency:
                    await self._level(requests, concurrency)
            except _ServerLostError as error:
                self._ended, self._message = "unreachable", str(error)
            else:
                self._ended, self._message = "completed", ""

    def report(self) -> Report:
        """The report of all requests so far."""
        return summary.report(
            self._settings,
            self._turns,
            url=self._connection.url,
            started=self._started,
            seconds=time.monotonic() - self._start_seconds,
            ended=self._ended,
            message=self._message,
            streamed=self._streamed,
            baseline_url=None
            if self._baseline is None
            else f"{self._baseline.url}{self._baseline.path}",
        )

    async def _prepare(self, server: Endpoint, baseline: Endpoint) -> Requests:
        if self._metrics_url is not None:
            await asyncio.to_thread(metrics.totals, self._metrics_url)
        settings = self._settings
        served = await service(server, settings.model, self._connection, self._requests)
        self._streamed = served.model.streams
        other = served
        if self._baseline is not None:
            other = await service(
                baseline, settings.baseline_model, self._baseline, self._baseline_requests
            )
            await asyncio.to_thread(
                refuse_same, self._connection, served.name, self._baseline, other.name
            )
        self._settings = replace(settings, model=served.name, baseline_model=other.name)
        requests = Requests(self._settings, served, other)
        async with requests.clients(1) as clients:
            for length in settings.arms:
                exchange = await clients[length][0].send(0, requests.get(length, 0))
                error = sample(exchange, requests.reader(length)).error
                if error is not None:
                    raise error
        return requests

    async def _level(self, requests: Requests, concurrency: int) -> None:
        settings = self._settings
        turns = self._turns[concurrency] = {arm: [] for arm in settings.arms}
        async with requests.clients(concurrency) as clients:
            if count := _warmup(settings, concurrency):
                for length in settings.arms:
                    await self._run_turn(clients[length], requests, length, range(count), [])
            for number, indices in enumerate(
                _turns(settings.requests_at(concurrency), concurrency)
            ):
                for length in settings.arms[::-1] if number % 2 else settings.arms:
                    await self._run_turn(clients[length], requests, length, indices, turns[length])

    async def _run_turn(
        self,
        clients: Sequence[LoadClient],
        requests: Requests,
        length: int | None,
        indices: range,
        turns: list[Turn],
    ) -> None:
        """Run one turn of an arm: each client sends its next request after the previous answer."""
        pending = iter(indices)
        limit = max(_MAX_UNREACHABLE, len(clients))
        exchanges: list[Exchange] = []
        after: Totals = {}
        ends: dict[LoadClient, float] = {}

        async def work(client: LoadClient) -> None:
            for index in pending:
                exchanges.append(await client.send(index, requests.get(length, index)))
                ends[client] = time.perf_counter()
                self._count(exchanges[-1], len(clients), length)
                if self._unreachable_in_a_row >= limit:
                    return

        before = await self._totals()
        started = time.perf_counter()
        try:
            with undisturbed():
                started = time.perf_counter()
                async with asyncio.TaskGroup() as group:
                    for client in clients:
                        group.create_task(work(client))
            after = await self._totals()
        finally:
            # An interrupted run keeps its answers. The mean excludes the time in which a client
            # has no more requests while others wait for their last answer.
            seconds = sum(end - started for end in ends.values()) / max(1, len(ends))
            samples = [sample(exchange, requests.reader(length)) for exchange in exchanges]
            turns.append(Turn(seconds, samples, before, after))
        if self._unreachable_in_a_row >= limit:
            raise _ServerLostError(str(exchanges[-1].error))

    def _count(self, exchange: Exchange, concurrency: int, length: int | None) -> None:
        unreachable = isinstance(exchange.error, UnreachableError)
        self._unreachable_in_a_row = self._unreachable_in_a_row + 1 if unreachable else 0
        self._done += 1
        self._on_progress(Progress(concurrency, length, self._done, self._total))

    async def _totals(self) -> Totals:
        """The server's counters; empty if they cannot be read, because they are optional."""
        if self._metrics_url is None:
            return {}
        try:
            return await asyncio.to_thread(metrics.totals, self._metrics_url)
        except ClientError:
            return {}


class _ServerLostError(Exception):
    """The server became unreachable; the run ends and keeps its results."""


def _warmup(settings: Settings, concurrency: int) -> int:
    """The number of warm-up requests per arm of a level, in which each client opens its stream."""
    return max(settings.warmup, concurrency) if settings.warmup else 0


def _turns(count: int, concurrency: int) -> Iterator[range]:
    """Split the requests of an arm into turns, with multiples of the concurrency if possible."""
    size = max(1, round(count / _TURNS / concurrency)) * concurrency
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
