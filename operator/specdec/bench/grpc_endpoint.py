"""Triton's gRPC endpoint under a benchmark's load; messages are decoded when no clock runs."""

import time
from collections.abc import Collection
from contextlib import aclosing
from typing import Any

from typing_extensions import override

from specdec.bench.endpoint import LoadClient
from specdec.bench.exchange import Exchange
from specdec.client.connection import Connection
from specdec.client.grpc_calls import Calls, Server, Tensors, infer_request
from specdec.client.transport import Model


class Grpc(Server):
    """See `endpoint.Endpoint`. All lines are streams of one connection."""

    async def model(self, name: str) -> Model:
        """What a model declares."""
        config = await self.config(name)
        return Model(
            frozenset(tensor.name for tensor in config.input),
            frozenset(tensor.name for tensor in config.output),
            config.model_transaction_policy.decoupled,
        )

    def message(
        self, model: str, tensors: Tensors, outputs: Collection[str], *, streamed: bool
    ) -> Any:
        """The same of a model that streams and of one that does not."""
        return infer_request(model, tensors, outputs)

    def line(self, *, streamed: bool) -> LoadClient:
        """A stream of its own, or unary calls."""
        return _Line(self._connection, self, streamed=streamed)


class _Line(LoadClient):
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
