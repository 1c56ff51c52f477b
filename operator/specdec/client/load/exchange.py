"""One benchmark request: its raw messages with arrival times, and the sample decoded from them.

Load clients fill in an `Exchange` while clocks run. `measurement` decodes it to a `Sample`
afterwards, so that decoding does not affect the measured times.
"""

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from specdec.client.errors import ClientError, RefusedError
from specdec.client.grpc_calls import decoded
from specdec.client.tensors import with_arrays
from specdec.client.transport import Response
from specdec.servers.chunk import ALWAYS, OUTPUT_TOKENS, Chunk, Counts
from specdec.servers.encoding import Reader

OUTPUTS = (*ALWAYS, OUTPUT_TOKENS)
# (arrival times, messages) -> (arrival time, response).
Decoder = Callable[[Sequence[float], Sequence[Any]], Iterator[tuple[float, Response]]]


def decode_messages(
    arrivals: Sequence[float], messages: Sequence[Any]
) -> Iterator[tuple[float, Response]]:
    """Decode gRPC messages: each message with outputs is one response."""
    for arrival, message in zip(arrivals, messages, strict=True):
        if message.outputs:
            yield arrival, decoded(message)


def lines(arrivals: Sequence[float], bodies: Sequence[bytes]) -> Iterator[tuple[float, bytes]]:
    """Cut a body into lines, each with the arrival time of its last byte.

    The last line may lack its newline, as the single response of a model that does not stream.
    """
    line, arrival = b"", 0.0
    for arrival, body in zip(arrivals, bodies, strict=True):
        *complete, line = (line + body).split(b"\n")
        for item in complete:
            yield arrival, item
    yield arrival, line


@dataclass
class Exchange:
    """The raw messages of one request.

    Attributes:
        index: of the request within its arm and level.
        sent: seconds of `time.perf_counter`, which all processes share on Linux.
        arrivals: of each message, by the same clock.
        messages: undecoded.
        error: why the answer is incomplete.
        decoder: decodes the messages; it may raise `ClientError`.
    """

    index: int
    sent: float
    arrivals: list[float] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    error: ClientError | None = None
    decoder: Decoder = decode_messages

    def responses(self) -> Iterator[tuple[float, Response]]:
        """Each response with its arrival time."""
        return self.decoder(self.arrivals, self.messages)


@dataclass(frozen=True)
class Step:
    """The draft tokens that one chunk adds to the counts; a streaming BLS sends one per round."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Sample:
    """One decoded request; times are in seconds since it was sent.

    Attributes:
        index: of the request within its arm and level.
        seconds: until the last chunk.
        first: until the first chunk with text.
        chunks: arrival times of all chunks.
        tokens: number of output tokens; None if the server does not report it.
        counts: of draft tokens; None if the server does not report them.
        steps: one per chunk; empty if a chunk reports no counts, as from OpenAI's API, which sends
            only the totals at the end.
        error: why the answer is incomplete; the other attributes are then unset.
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


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable garbage collection while clocks run: it would traverse all recorded messages."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def sample(exchange: Exchange, reader: Reader) -> Sample:
    """Decode an exchange, whose responses are read by `reader`."""
    if exchange.error is not None:
        return Sample(exchange.index, error=exchange.error)
    try:
        return _sample(exchange, reader)
    except ClientError as error:
        return Sample(exchange.index, error=error)


def _sample(exchange: Exchange, reader: Reader) -> Sample:
    parts: list[tuple[float, Chunk]] = []
    arrival = 0.0
    for arrival, response in exchange.responses():
        part = reader.read(response)
        if part is not None:
            parts.append((arrival - exchange.sent, part))
    if (rest := reader.end()) is not None:
        # What is left at the end belongs to the last chunk.
        elapsed, last = parts.pop() if parts else (arrival - exchange.sent, rest)
        text = last.text if last is rest else last.text + rest.text
        outputs = rest.optional_outputs or last.optional_outputs
        counts = rest.counts or last.counts
        parts.append((elapsed, Chunk(text, counts, optional_outputs=outputs)))
    if not parts:
        raise RefusedError("the answer had no text_output")
    chunks = tuple(elapsed for elapsed, _ in parts)
    totals = [part.counts for _, part in parts]
    return Sample(
        exchange.index,
        seconds=chunks[-1],
        first=next((elapsed for elapsed, part in parts if part.text), 0.0),
        chunks=chunks,
        tokens=_tokens(part for _, part in parts),
        counts=totals[-1],
        steps=_steps(totals),
    )


def _tokens(parts: Iterable[Chunk]) -> int | None:
    """The number of output tokens, if the server reports it."""
    outputs = (with_arrays(part).optional_outputs.get(OUTPUT_TOKENS) for part in parts)
    counts = [int(count.reshape(-1)[0]) for count in outputs if count is not None and count.size]
    return sum(counts) if counts else None


def _steps(totals: Sequence[Counts | None]) -> tuple[Step, ...]:
    """The difference that each chunk makes to the totals of the answer."""
    reported = [total for total in totals if total is not None]
    if len(reported) < len(totals):
        return ()
    return tuple(
        Step(after.drafted - before.drafted, after.accepted - before.accepted)
        for before, after in itertools.pairwise((Counts(0, 0), *reported))
    )
