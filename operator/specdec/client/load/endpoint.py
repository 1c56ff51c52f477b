"""The interface between the benchmark and a server, for gRPC and HTTP.

`measurement` opens an `Endpoint` by `opened.endpoint`. It sends requests with one `LoadClient` per
concurrent client.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Any, Protocol

from specdec.client.connection import Connection
from specdec.client.errors import ClientError
from specdec.client.load.exchange import Exchange
from specdec.client.transport import timed_out
from specdec.servers.encoding import Call, Declaration


class LoadClient(ABC):
    """One concurrent client, which sends one request after another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, index: int, request: Any) -> Exchange:
        """Send a request and record the arrival times of its response messages.

        An error is recorded in the exchange, and the next request uses a new connection.

        Args:
            index: of the request.
            request: from `Endpoint.message`; it can be reused.
        """
        exchange = Exchange(index, time.perf_counter())
        try:
            async with asyncio.timeout(self._connection.timeout):
                await self._read(exchange, request)
        except TimeoutError:
            exchange.error = timed_out(self._connection)
        except ClientError as error:
            exchange.error = error
        if exchange.error is not None:
            await self.close()
        return exchange

    @abstractmethod
    async def _read(self, exchange: Exchange, request: Any) -> None:
        """Send a request and fill in its exchange until the answer is complete."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection; the next request opens another."""


class Endpoint(Protocol):
    """A server under load; its errors are those of `transport.Transport`."""

    async def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""

    def message(self, call: Call, *, streamed: bool) -> Any:
        """Encode a request; the measurement does so before it starts a clock."""

    def client(self, *, streamed: bool) -> LoadClient:
        """Create one concurrent client, for a model that streams or for one that does not."""
