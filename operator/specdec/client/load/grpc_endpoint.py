"""The benchmark's endpoint for gRPC.

`opened.endpoint` creates it for `--protocol grpc`. Messages are only recorded while clocks run,
and decoded afterwards.
"""

import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from typing_extensions import override

from specdec.client.connection import Connection
from specdec.client.grpc_calls import Calls, Server, declaration, tensor_request
from specdec.client.load.endpoint import LoadClient
from specdec.client.load.exchange import Exchange
from specdec.servers.encoding import Call, Declaration


class Grpc(Server):
    """See `endpoint.Endpoint`. All clients are streams of one connection."""

    async def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""
        config = await self.config(name)
        # An ensemble answers unary calls too.
        return replace(declaration(config), streams=config.model_transaction_policy.decoupled)

    def message(self, call: Call, *, streamed: bool) -> Any:
        """Encode a request, which has the same form with and without streaming."""
        return tensor_request(call)

    def client(self, *, streamed: bool) -> LoadClient:
        """Create a client with its own stream, or with unary calls."""
        return _GrpcClient(self._connection, self, streamed=streamed)


class _GrpcClient(LoadClient):
    def __init__(self, connection: Connection, server: Server, *, streamed: bool) -> None:
        super().__init__(connection)
        self._server = server
        self._streamed = streamed
        self._calls = Calls(server)

    @override
    async def close(self) -> None:
        calls, self._calls = self._calls, Calls(self._server)
        await calls.__aexit__(None, None, None)

    @override
    async def _read(self, exchange: Exchange, request: Any) -> None:
        # Local names keep the time between the arrival of a message and the clock short.
        add_arrival, add_message, clock = exchange.arrivals.append, exchange.messages.append, _now
        if not self._streamed:
            add_message(await self._calls.unary(request))
            add_arrival(clock())
            return
        async with aclosing(self._calls.replies(request)) as replies:
            async for message in replies:
                add_arrival(clock())
                add_message(message)


_now = time.perf_counter
