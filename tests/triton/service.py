"""A stand-in for kube-proxy: a new connection goes to the current endpoint and stays there."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self

from cluster.processes import DEADLINE_SECONDS


class Service:
    """An address in front of servers, as a context manager.

    Attributes:
        endpoint: port for new connections; existing connections stay at their old port.
    """

    def __init__(self, endpoint: int) -> None:
        self.endpoint = endpoint
        self.connections = 0
        self._server: asyncio.Server
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def url(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._forward, "127.0.0.1", 0))
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_SECONDS)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self.endpoint)
        except OSError:
            # Connection refused: the client sees that its connection ends.
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    # When one side closes its connection, the other connection ends too.
    with contextlib.closing(sink), contextlib.suppress(ConnectionError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
