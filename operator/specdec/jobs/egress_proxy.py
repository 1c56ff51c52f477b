"""The one way out of a fetch Job: a proxy on its loopback that connects only where it may.

Every client asks through it, whatever library that is, for the first address as for those that
redirects, token servers and pages of a listing lead to. It resolves a name once, checks what came
of it, and connects to the checked address, so that a name cannot mean another one a moment later.
TLS runs through it end to end.
"""

import asyncio
import functools
import re
import socket
import threading
from types import TracebackType
from typing import Self

from specdec.api.networks import Networks
from specdec.api.reasons import FetchReason
from specdec.jobs.download import unreachable
from specdec.jobs.proxy_protocol import ConnectionFailedError, Request, UpstreamProxies, read_head
from specdec.jobs.result import JobError

_HEAD_SECONDS = 60.0
# A client that writes to a slow volume takes its time to read the rest.
_FLUSH_SECONDS = 600.0
_LAST_TURNS = 10
_BLOCK = 1 << 20
_SMALL_BYTES = 64 << 20
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedError(Exception):
    """An address that may not be reached: its host, and of what kind it is."""

    def __init__(self, host: str, kind: str) -> None:
        super().__init__(host)
        self.host, self.kind = host, kind


class EgressProxy:
    """Serves while the context lasts; `url` is the proxy that clients are given.

    `small_url` is one whose connections end after 64 MiB, for a library that reads whole listings
    into memory.
    """

    def __init__(self, networks: Networks, outward: UpstreamProxies | None = None) -> None:
        self._networks = networks
        self._outward = UpstreamProxies.from_environment() if outward is None else outward
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: RefusedError | None = None
        self._failure = ""
        self._servers: list[asyncio.Server] = []
        self.url = self.small_url = ""

    def __enter__(self) -> Self:
        """Listen on a free port of the loopback, and serve in a thread of its own."""
        self._thread.start()
        listening = [self._listen(limit) for limit in (None, _SMALL_BYTES)]
        self.url, self.small_url = (
            asyncio.run_coroutine_threadsafe(one, self._loop).result() for one in listening
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def explained(self, error: JobError, where: str) -> JobError:
        """The error of a client, or what the guard knows better: where it did not connect."""
        if self._refused is not None:
            host = self._refused.host
            return JobError(
                FetchReason.ADDRESS_REFUSED,
                f"{where} leads to {_shown(host)}, which is {self._refused.kind}: correct the "
                "source, or ask the operator's administrator to add the network to "
                "fetch.allowedNetworks",
            )
        if error.reason == FetchReason.NETWORK_ERROR and self._failure:
            return unreachable(where, self._failure)
        return error

    async def _listen(self, limit: int | None) -> str:
        """Listen; a connection brings at most `limit` bytes."""
        accept = functools.partial(self._accept, limit)
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_BLOCK, backlog=64)
        self._servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for _ in range(_LAST_TURNS):
            # A connection that is being accepted appears some turns of the loop later, and an
            # aborted one lets go of its socket in the next.
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _accept(
        self, limit: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.ensure_future(self._serve((reader, writer), limit))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also of a task that is cancelled before it begins.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, client: Streams, limit: int | None) -> None:
        reader, writer = client
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                request = Request.parse(await read_head(reader))
                upstream = await self._connect(request)
        except RefusedError as error:
            self._refused = error
            _answer(writer, "403 Forbidden")
        except ConnectionFailedError as error:
            self._failure = str(error)
            _answer(writer, "502 Bad Gateway")
        except (OSError, TimeoutError, EOFError, ValueError):
            _answer(writer, "400 Bad Request")
        else:
            self._failure = ""
            await _relay(client, upstream, request, limit)
        finally:
            await _finish(writer)

    async def _connect(self, request: Request) -> Streams:
        """Connect to the host of a request, or to the proxy that leads there."""
        proxy = self._outward.proxy(request.scheme, request.host)
        if proxy is None:
            addresses = await self._checked(request.host, request.port)
            upstream = await _open(addresses, request.host)
        else:
            await self._behind_proxy(request)
            addresses = await self._checked(proxy.host, proxy.port)
            upstream = await _open(addresses, proxy.host, tls=proxy.tls)
        try:
            await request.send(*upstream, proxy)
        except BaseException:
            upstream[1].close()
            raise
        return upstream

    async def _behind_proxy(self, request: Request) -> None:
        """A name that only the proxy knows is the proxy's to judge; what is known here is ours."""
        try:
            await self._checked(request.host, request.port)
        except ConnectionFailedError:
            return

    async def _checked(self, host: str, port: int) -> list[tuple[str, int]]:
        """The addresses of a name that may be reached; at least one."""
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionFailedError(f"{_shown(host)} cannot be resolved") from error
        addresses = [str(entry[4][0]) for entry in entries]
        refusals = {address: self._networks.refusal(address) for address in addresses}
        good = [(address, port) for address, kind in refusals.items() if kind is None]
        if not good:
            raise RefusedError(host, next(kind for kind in refusals.values() if kind))
        return good


async def _open(addresses: list[tuple[str, int]], host: str, *, tls: bool = False) -> Streams:
    """Connect to the first address that answers."""
    context = UpstreamProxies.context() if tls else None
    for address, port in addresses:
        try:
            return await asyncio.open_connection(
                address,
                port,
                limit=_BLOCK,
                ssl=context,
                server_hostname=host if tls else None,
            )
        except OSError:
            continue
    raise ConnectionFailedError(f"{_shown(host)} does not take connections")


async def _relay(client: Streams, upstream: Streams, request: Request, limit: int | None) -> None:
    """Both directions at once, until either side ends."""
    pumps: list[asyncio.Task[None]] = []
    try:
        await request.accept(upstream[0], client[1])
        pumps += [
            asyncio.ensure_future(_pump(client[0], upstream[1])),
            asyncio.ensure_future(_pump(upstream[0], client[1], limit)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    except (OSError, EOFError, ValueError):
        pass  # the client sees its connection close
    finally:
        for pump in pumps:
            pump.cancel()
        upstream[1].close()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None = None
) -> None:
    count = 0
    while block := await reader.read(_BLOCK):
        count += len(block)
        if limit is not None and count > limit:
            return
        writer.write(block)
        await writer.drain()


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close a connection once what was written has left."""
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())


def _shown(host: str) -> str:
    """A host for a message: it may come from a redirect, and a redirect may hold any text."""
    return host if _HOST.fullmatch(host) else "a host whose name is invalid"
