"""What a benchmark asks of a server, whichever protocol is spoken there."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal
from typing import Protocol as Shape

from specdec.bench.exchange import Exchange
from specdec.client.connection import Connection
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Tensors
from specdec.client.transport import Model, late

Protocol = Literal["grpc", "http"]


class LoadClient(ABC):
    """One client of the load: a connection of its own that carries request after request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, index: int, request: Any) -> Exchange:
        """Send a request and note when its answer's messages come; never raises for its errors.

        A line whose request failed begins a connection of its own for the next one.

        Args:
            index: the exchange's.
            request: by `Endpoint.message`; it may be sent again.
        """
        exchange = Exchange(index, time.perf_counter())
        try:
            async with asyncio.timeout(self._connection.timeout):
                await self._read(exchange, request)
        except TimeoutError:
            exchange.error = late(self._connection)
        except ClientError as error:
            exchange.error = error
        if exchange.error is not None:
            await self.close()
        return exchange

    @abstractmethod
    async def _read(self, exchange: Exchange, request: Any) -> None:
        """Send a request and fill in its exchange until the answer is whole."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection; the next request makes another."""


class Endpoint(Shape):
    """A server; errors are those of `transport.Transport`."""

    async def model(self, name: str) -> Model:
        """What a model declares."""

    def message(
        self, model: str, tensors: Tensors, outputs: Collection[str], *, streamed: bool
    ) -> Any:
        """A request as it goes over the wire, made before any clock runs."""

    def line(self, *, streamed: bool) -> LoadClient:
        """One more client, of a model that streams or answers once."""


def endpoint(connection: Connection, protocol: Protocol) -> AbstractAsyncContextManager[Endpoint]:
    """The server at an address; only what that protocol needs is loaded."""
    if protocol == "http":
        from specdec.bench.http_endpoint import Http

        # Nothing is kept open but the lines.
        return nullcontext(Http(connection))
    from specdec.bench.grpc_endpoint import Grpc

    return Grpc(connection)
