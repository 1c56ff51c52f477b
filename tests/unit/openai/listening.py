"""A real HTTP server for an endpoint, with the protocol class that the program uses."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from specdec.images.openai import http

_DEADLINE = 60


class Listening(uvicorn.Server):
    """A uvicorn server that sets an event when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def listening(application: ASGIApp, connections: int = sys.maxsize) -> AsyncIterator[int]:
    """Run a server with the program's protocol class and yield its port."""
    config = uvicorn.Config(
        application,
        http=partial(http.Protocol, connections=connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        host="127.0.0.1",
        port=0,
        log_level="error",
    )
    server = Listening(config)
    running = asyncio.ensure_future(server._serve())
    async with asyncio.timeout(_DEADLINE):
        await server.listening.wait()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running
