"""Let requests in: read their bodies, and count them against the limits of the process.

A request takes a place among those in flight when its body is complete, so that bodies which never
arrive block no other client. Bodies in arrival have limits of their own. At these limits, the
slowest body makes room.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from specdec.images.openai.body import shown
from specdec.images.openai.errors import ApiError, overloaded, too_large
from specdec.images.openai.limits import BODIES, BODY_BYTES_PER_SECOND, Limits
from specdec.images.openai.metrics import Metrics

# To be called once, with the HTTP status of the request.
Leave = Callable[[int], None]
# A body is not slow before this time has passed.
_GRACE_SECONDS = 0.1


@dataclass(eq=False)
class _Arrival:
    """A body that is not complete; `removed` if it made room for another one."""

    began: float
    timeout: asyncio.Timeout
    size: int = 0
    removed: bool = False

    def speed(self, now: float) -> float:
        """Bytes per second so far."""
        return self.size / (now - self.began + _GRACE_SECONDS)


class Intake:
    """The bodies in arrival and the requests in flight of one process.

    Attributes:
        in_flight: requests that are being answered.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.in_flight = 0
        self._limits, self._metrics = limits, metrics
        self._arrivals: set[_Arrival] = set()
        self._arriving_bytes = self._held_bytes = 0

    async def enter(self, request: Request, path: str) -> tuple[bytes, Leave]:
        """Read a body and take a place; return the body and the function that frees the place.

        Args:
            request: its body has not been read.
            path: for the metrics.

        Raises:
            ApiError: the body is too large or too slow, or the process has too much to do.
            ClientDisconnect: the client has left.
        """
        try:
            # A request that would get no place is not read.
            self._check(0)
            body = await self._body(request)
            self._check(len(body))
        except BaseException as error:
            self._metrics.requests.labels(path, status_of(error)).inc()
            raise
        size = len(body)
        self._held_bytes += size
        self._move(1)

        def leave(status: int) -> None:
            self._held_bytes -= size
            self._move(-1)
            self._metrics.requests.labels(path, status).inc()

        return body, leave

    def take(self, places: int) -> Callable[[], None]:
        """Take further places for a request in flight; return the function that frees them.

        Raises:
            ApiError: there are not as many.
        """
        if self.in_flight + places > self._limits.in_flight:
            raise self._full()
        self._move(places)
        return partial(self._move, -places)

    def _move(self, places: int) -> None:
        self.in_flight += places
        self._metrics.in_flight.inc(places)

    def _full(self) -> ApiError:
        return overloaded(
            f"{self._limits.in_flight} requests are being answered, the limit of this server; "
            "try again later"
        )

    def _check(self, size: int) -> None:
        limits = self._limits
        if self.in_flight >= limits.in_flight:
            raise self._full()
        if self._held_bytes + size > limits.held_bytes:
            raise overloaded(
                f"the requests that are being answered have {limits.held_bytes} bytes, the limit "
                "of this server; try again later"
            )

    async def _body(self, request: Request) -> bytes:
        limit = self._limits.body_bytes
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise ApiError(
                f"the body has the content-encoding {shown(coding)}; send it without one",
                status=415,
            )
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise too_large(limit)
        loop = asyncio.get_running_loop()
        body, parts = bytearray(), request.stream()
        timeout = asyncio.timeout(self._limits.body_seconds)
        arrival = _Arrival(loop.time(), timeout)
        try:
            async with timeout:
                self._begin(arrival)
                async for part in _nonempty(parts):
                    body += part
                    if len(body) > limit:
                        raise too_large(limit)
                    self._grow(arrival, len(part))
        except TimeoutError:
            raise self._late(arrival) from None
        finally:
            self._end(arrival)
        return bytes(body)

    def _begin(self, arrival: _Arrival) -> None:
        self._arrivals.add(arrival)
        if len(self._arrivals) > BODIES:
            # A body that arrived together with its head ends before this call.
            asyncio.get_running_loop().call_soon(self._limit_number)

    def _limit_number(self) -> None:
        while len(self._arrivals) > BODIES:
            self._make_room()

    def _grow(self, arrival: _Arrival, size: int) -> None:
        if arrival.removed:
            return
        arrival.size += size
        self._arriving_bytes += size
        arrival.timeout.reschedule(
            arrival.began + self._limits.body_seconds + arrival.size / BODY_BYTES_PER_SECOND
        )
        while self._arriving_bytes > self._limits.arriving_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """End the slowest arrival; its task raises TimeoutError when it runs next."""
        now = asyncio.get_running_loop().time()
        slowest = min(self._arrivals, key=lambda arrival: arrival.speed(now))
        slowest.removed = True
        if not slowest.timeout.expired():
            slowest.timeout.reschedule(now)
        self._end(slowest)

    def _end(self, arrival: _Arrival) -> None:
        if arrival in self._arrivals:
            self._arrivals.remove(arrival)
            self._arriving_bytes -= arrival.size

    def _late(self, arrival: _Arrival) -> ApiError:
        if arrival.removed:
            return overloaded(
                "too many bodies arrive at a time, and this one was the slowest; try again later"
            )
        rate, seconds = BODY_BYTES_PER_SECOND >> 10, self._limits.body_seconds
        return ApiError(
            f"the body did not arrive within {seconds:g} s and one more for each {rate} KiB; "
            "send it faster",
            status=408,
            code="request_timeout",
            close=True,
        )


def status_of(error: BaseException) -> int:
    """The status with which a request is counted; 499 is a client that disconnected."""
    return error.status if isinstance(error, ApiError) else 499


async def _nonempty(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        if part:
            yield part
