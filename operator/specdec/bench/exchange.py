"""One request and the moments at which its answer came; decoded when no clock runs."""

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from specdec.client.answer import Counts, chunk
from specdec.client.errors import ClientError, RefusedError
from specdec.client.grpc_calls import Tensors, decoded

_NUMBER = "num_output_tokens"
OUTPUTS = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens", _NUMBER)
# When the messages of an answer came, and the messages -> when its parts came, and their tensors.
Reading = Callable[[Sequence[float], Sequence[Any]], Iterator[tuple[float, Tensors]]]


def read_messages(
    arrivals: Sequence[float], messages: Sequence[Any]
) -> Iterator[tuple[float, Tensors]]:
    """The parts of an answer over gRPC: each message is one, or has no outputs."""
    for arrival, message in zip(arrivals, messages, strict=True):
        if message.outputs:
            yield arrival, decoded(message)


@dataclass
class Exchange:
    """What went over the wire for one request.

    Attributes:
        index: the request's number within its arm and level.
        sent: seconds of `time.perf_counter`, which on Linux all processes share.
        arrivals: of each message, the same clock.
        messages: as they came, undecoded.
        error: why there is no whole answer.
        reading: makes parts of the messages; may raise `ClientError`.
    """

    index: int
    sent: float
    arrivals: list[float] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    error: ClientError | None = None
    reading: Reading = read_messages

    def parts(self) -> Iterator[tuple[float, Tensors]]:
        """When each part of the answer came, and its tensors."""
        return self.reading(self.arrivals, self.messages)


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


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage is collected while clocks run: all that is kept would be walked over again."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def sample(exchange: Exchange) -> Sample:
    """Decode what came."""
    if exchange.error is not None:
        return Sample(exchange.index, error=exchange.error)
    try:
        return _sample(exchange)
    except ClientError as error:
        return Sample(exchange.index, error=error)


def _sample(exchange: Exchange) -> Sample:
    chunks: list[float] = []
    totals: list[Counts | None] = []
    first, tokens = 0.0, None
    for arrival, tensors in exchange.parts():
        part = chunk(tensors, frozenset((_NUMBER,)))
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
        raise RefusedError("the answer had no text_output")
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
