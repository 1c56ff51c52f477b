"""The measurement: levels, arms in turns, blocks of requests by clients that never pause."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specdec.bench import summary
from specdec.bench.endpoint import Endpoint, LoadClient, Protocol, endpoint
from specdec.bench.exchange import OUTPUTS, Exchange, sample, undisturbed
from specdec.bench.report import Ended, Report
from specdec.bench.settings import BLS, Settings
from specdec.bench.summary import Block, Totals
from specdec.client import metrics
from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.client.request import Request
from specdec.client.transport import Model

# Each arm's requests come in so many turns, so that a drift of the machine meets all arms.
_TURNS = 4
# So many requests after another that reach nobody: the server is gone, not one of its pods.
_LOST = 3


@dataclass(frozen=True)
class Progress:
    """How far a run is: `done` of `total` requests, warm-up included."""

    concurrency: int
    draft_tokens: int | None
    done: int
    total: int


Tell = Callable[[Progress], None]


async def measure(
    connection: Connection,
    settings: Settings,
    *,
    metrics_url: str | None = None,
    tell: Tell | None = None,
    protocol: Protocol = "http",
) -> Report:
    """Run a benchmark to its end; see `Measurement`."""
    measurement = Measurement(
        connection, settings, metrics_url=metrics_url, tell=tell, protocol=protocol
    )
    await measurement.run()
    return measurement.report()


class Measurement:
    """A benchmark of one server; `report` tells what there is at any time.

    The arms of a level take turns on one connection, so that both meet the same pod, the same
    clients' load and the same drift; the order is reversed in every other turn. While a clock
    runs, messages are only kept: they are decoded between turns.

    Args:
        connection: where the server is.
        settings: what to run.
        metrics_url: `host:port` of the server's metrics, for its energy, and for acceptance
            where answers do not tell it. Others who use the server are counted there too.
        tell: called after every request.
        protocol: what is spoken there. The times of HTTP are the nearer to the server's.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        *,
        metrics_url: str | None = None,
        tell: Tell | None = None,
        protocol: Protocol = "http",
    ) -> None:
        self._connection = connection
        self._protocol: Protocol = protocol
        self._settings = settings
        self._metrics_url = metrics_url
        self._tell = tell or (lambda _: None)
        self._started = datetime.now(UTC)
        self._begun = time.monotonic()
        self._blocks: dict[int, dict[int | None, list[Block]]] = {}
        self._ended: Ended = "interrupted"
        self._message = "the run was interrupted"
        self._streamed = True
        self._silent = 0
        self._done = 0
        self._total = len(settings.arms) * sum(
            settings.sent(level) + _warmup(settings, level) for level in settings.concurrency
        )

    async def run(self) -> None:
        """Measure all levels; a server that goes away in the middle ends the run, told so.

        Raises:
            UnreachableError: nobody answers at first.
            RefusedError, BadRequestError: the first request of an arm cannot be answered.
        """
        async with endpoint(self._connection, self._protocol) as server:
            requests = await self._prepare(server)
            try:
                for concurrency in self._settings.concurrency:
                    await self._level(server, requests, concurrency)
            except _LostError as lost:
                self._ended, self._message = "unreachable", str(lost)
            else:
                self._ended, self._message = "completed", ""

    def report(self) -> Report:
        """What was measured so far."""
        return summary.report(
            self._settings,
            self._blocks,
            url=self._connection.url,
            started=self._started,
            seconds=time.monotonic() - self._begun,
            ended=self._ended,
            message=self._message,
            streamed=self._streamed,
        )

    async def _prepare(self, server: Endpoint) -> "_Requests":
        if self._metrics_url is not None:
            await asyncio.to_thread(metrics.totals, self._metrics_url)
        model = await server.model(self._settings.model)
        self._streamed = model.streams
        requests = _Requests(self._settings, model, server)
        line = server.line(streamed=self._streamed)
        try:
            for length in self._settings.arms:
                exchange = await line.ask(0, requests.get(length, 0))
                error = exchange.error or sample(exchange).error
                if error is not None:
                    raise error
        finally:
            await line.close()
        return requests

    async def _level(self, server: Endpoint, requests: "_Requests", concurrency: int) -> None:
        settings = self._settings
        blocks = self._blocks[concurrency] = {arm: [] for arm in settings.arms}
        async with AsyncExitStack() as stack:
            lines = [server.line(streamed=self._streamed) for _ in range(concurrency)]
            for line in lines:
                stack.push_async_callback(line.close)
            if count := _warmup(settings, concurrency):
                for length in settings.arms:
                    await self._turn(lines, requests, length, range(count), [])
            for number, part in enumerate(_parts(settings.sent(concurrency), concurrency)):
                for length in settings.arms[::-1] if number % 2 else settings.arms:
                    await self._turn(lines, requests, length, part, blocks[length])

    async def _turn(
        self,
        lines: Sequence[LoadClient],
        requests: "_Requests",
        length: int | None,
        part: range,
        blocks: list[Block],
    ) -> None:
        """Every client takes the next request as soon as it has its answer."""
        waiting = iter(part)
        limit = max(_LOST, len(lines))
        exchanges: list[Exchange] = []
        after: Totals = {}
        ends: dict[LoadClient, float] = {}

        async def work(line: LoadClient) -> None:
            for index in waiting:
                exchanges.append(await line.ask(index, requests.get(length, index)))
                ends[line] = time.perf_counter()
                self._note(exchanges[-1], len(lines), length)
                if self._silent >= limit:
                    return

        before = await self._totals()
        begun = time.perf_counter()
        try:
            with undisturbed():
                begun = time.perf_counter()
                async with asyncio.TaskGroup() as group:
                    for line in lines:
                        group.create_task(work(line))
            after = await self._totals()
        finally:
            # Whoever interrupts the run keeps the answers that were there. Clients that found
            # nothing more to do do not count while others are still at their last request.
            seconds = sum(end - begun for end in ends.values()) / max(1, len(ends))
            samples = [sample(one) for one in exchanges]
            blocks.append(Block(seconds, samples, before, after))
        if self._silent >= limit:
            raise _LostError(str(exchanges[-1].error))

    def _note(self, exchange: Exchange, concurrency: int, length: int | None) -> None:
        gone = isinstance(exchange.error, UnreachableError)
        self._silent = self._silent + 1 if gone else 0
        self._done += 1
        self._tell(Progress(concurrency, length, self._done, self._total))

    async def _totals(self) -> Totals:
        """The server's counters, empty where they cannot be had: a turn is told without them."""
        if self._metrics_url is None:
            return {}
        try:
            return await asyncio.to_thread(metrics.totals, self._metrics_url)
        except ClientError:
            return {}


class _LostError(Exception):
    """The server is gone; what there is is told."""


class _Requests:
    """The messages of a run, made before any clock runs.

    Raises:
        BadRequestError: the model lacks an input that a benchmark needs.
    """

    def __init__(self, settings: Settings, model: Model, server: Endpoint) -> None:
        self._settings = settings
        self._server = server
        self._declared = model.inputs
        self._outputs = [name for name in OUTPUTS if name in model.outputs]
        self._streamed = model.streams
        if "num_draft_tokens" not in self._declared:
            raise BadRequestError(
                f"model {settings.model} has no input num_draft_tokens, so its speculation cannot "
                f"be switched off for the baseline; ask {BLS}"
            )
        count = max(settings.sent(one) for one in settings.concurrency)
        self._made = {arm: [self._make(arm, n) for n in range(count)] for arm in settings.arms}

    def get(self, length: int | None, index: int) -> Any:
        """The message of an arm's request."""
        return self._made[length][index]

    def _make(self, length: int | None, index: int) -> Any:
        settings = self._settings
        request = Request(
            settings.prompts[index % len(settings.prompts)],
            model=settings.model,
            max_tokens=settings.output_tokens,
            # No token is number -1: nothing but the length ends the answer.
            end_id=-1,
            seed=settings.seed + index,
            draft_tokens=length,
            stream=self._streamed,
            token_counts="return_num_output_tokens" in self._declared,
        )
        tensors = request.tensors(self._declared)
        return self._server.message(
            settings.model, tensors, self._outputs, streamed=self._streamed
        )


def _warmup(settings: Settings, concurrency: int) -> int:
    """Requests of an arm before a level: each client opens its stream then."""
    return max(settings.warmup, concurrency) if settings.warmup else 0


def _parts(count: int, concurrency: int) -> Iterator[range]:
    """The requests of an arm in turns, each of them whole rounds of all clients if it can be."""
    size = max(1, round(count / _TURNS / concurrency)) * concurrency
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
