"""One request and the moments at which its answer came; decoded when no clock runs."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from specdec.client.answer import Counts, chunk
from specdec.client.errors import ClientError, RefusedError, UnreachableError
from specdec.client.wire import Calls, Server, decoded

_NUMBER = "num_output_tokens"
OUTPUTS = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens", _NUMBER)


@dataclass
class Exchange:
    """What went over the wire for one request.

    Attributes:
        index: the request's number within its arm and level.
        sent: seconds of `time.perf_counter`, which on Linux all processes share.
        arrivals: of each message, the same clock.
        messages: as they came, undecoded.
        error: why there is no whole answer.
    """

    index: int
    sent: float
    arrivals: list[float] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    error: ClientError | None = None


@dataclass(frozen=True)
class Step:
    """What one chunk told of its round."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Sample:
    """One request as its client saw it; times in seconds since it was sent.

    Attributes:
        index: the request's number within its arm and level.
        seconds: until the last chunk.
        first: until the first chunk with text.
        chunks: of every chunk with an answer's outputs, in order.
        tokens: of the answer where the server counted them.
        counts: of draft tokens where the server tells them.
        steps: of the chunks, where each brought one round.
        error: why there is no whole answer; nothing else is meant then.
    """

    index: int
    seconds: float = 0.0
    first: float = 0.0
    chunks: tuple[float, ...] = ()
    tokens: int | None = None
    counts: Counts | None = None
    steps: tuple[Step, ...] = ()
    error: ClientError | None = None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between chunks."""
        return tuple(b - a for a, b in itertools.pairwise(self.chunks))


class Line:
    """One client of the load: a stream of its own that carries request after request."""

    def __init__(self, server: Server, *, streamed: bool) -> None:
        self._server = server
        self._streamed = streamed
        self._calls = Calls(server)

    async def close(self) -> None:
        """End the stream."""
        await self._calls.__aexit__(None, None, None)

    async def ask(self, index: int, request: Any) -> Exchange:
        """Send a request and note when its answer's messages come; never raises for its errors.

        A line whose request failed begins a stream of its own for the next one.
        """
        exchange = Exchange(index, time.perf_counter())
        try:
            async with asyncio.timeout(self._server.timeout):
                await self._read(exchange, request)
        except TimeoutError:
            exchange.error = UnreachableError(
                f"no whole answer from {self._server.url} within {self._server.timeout:g} s; "
                "ask for fewer tokens or give more time"
            )
        except ClientError as error:
            exchange.error = error
        if exchange.error is not None:
            await self.close()
            self._calls = Calls(self._server)
        return exchange

    async def _read(self, exchange: Exchange, request: Any) -> None:
        arrived, kept, clock = exchange.arrivals.append, exchange.messages.append, _now
        if not self._streamed:
            kept(await self._calls.unary(request))
            arrived(clock())
            return
        async with aclosing(self._calls.replies(request)) as replies:
            async for message in replies:
                arrived(clock())
                kept(message)


_now = time.perf_counter


def sample(exchange: Exchange) -> Sample:
    """Decode what came."""
    if exchange.error is not None:
        return Sample(exchange.index, error=exchange.error)
    chunks: list[float] = []
    totals: list[Counts | None] = []
    first, tokens = 0.0, None
    for arrival, message in zip(exchange.arrivals, exchange.messages, strict=True):
        part = chunk(decoded(message), frozenset((_NUMBER,))) if message.outputs else None
        if part is None:
            continue
        elapsed = arrival - exchange.sent
        chunks.append(elapsed)
        totals.append(part.counts)
        if part.text and not first:
            first = elapsed
        number = part.extras.get(_NUMBER)
        if number is not None and number.size:
            tokens = (tokens or 0) + int(number.reshape(-1)[0])
    if not chunks:
        return Sample(exchange.index, error=RefusedError("the answer had no text_output"))
    return Sample(
        exchange.index,
        seconds=chunks[-1],
        first=first,
        chunks=tuple(chunks),
        tokens=tokens,
        counts=totals[-1],
        steps=_steps(totals),
    )


def _steps(totals: Sequence[Counts | None]) -> tuple[Step, ...]:
    """What each chunk adds to the counts so far."""
    known = [Counts(0, 0), *(total for total in totals if total is not None)]
    return tuple(
        Step(after.drafted - before.drafted, after.accepted - before.accepted)
        for before, after in itertools.pairwise(known)
    )
