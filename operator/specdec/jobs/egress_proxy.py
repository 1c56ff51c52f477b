"""The egress proxy of a fetch Job: it listens on loopback and connects to allowed addresses only.

`fetch` starts an `EgressProxy`, and every source's client sends its requests through it, including
redirects, token servers and pages of a listing. The proxy resolves a host name once, checks the
addresses against the allowed networks, and connects to a checked address. A later DNS change can
therefore not redirect the connection. TLS stays end to end between client and server.
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
from specdec.jobs.proxy_protocol import (
    ConnectionFailedError,
    ProxyRequest,
    UpstreamProxies,
    read_head,
)
from specdec.jobs.result import JobError

_HEAD_SECONDS = 60.0
# A client that writes to a slow volume reads the end of a response late.
_FLUSH_SECONDS = 600.0
_CLOSE_ROUNDS = 10
_BLOCK = 1 << 20
_LISTING_BYTES = 64 << 20
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedError(Exception):
    """The host's address is not in an allowed network; `kind` names the network it is in."""

    def __init__(self, host: str, kind: str) -> None:
        super().__init__(host)
        self.host, self.kind = host, kind


class EgressProxy:
    """An HTTP proxy in a thread, as a context manager.

    Attributes:
        url: the proxy address for clients.
        limited_url: a second address that ends a connection after 64 MiB, for libraries that
            read a whole listing into memory.
    """

    def __init__(self, networks: Networks, upstream: UpstreamProxies | None = None) -> None:
        self._networks = networks
        self._upstream = UpstreamProxies.from_environment() if upstream is None else upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: RefusedError | None = None
        self._failure = ""
        self._servers: list[asyncio.Server] = []
        self.url = self.limited_url = ""

    def __enter__(self) -> Self:
        """Listen on two free loopback ports, and serve in a separate thread."""
        self._thread.start()
        listeners = [self._listen(limit) for limit in (None, _LISTING_BYTES)]
        self.url, self.limited_url = (
            asyncio.run_coroutine_threadsafe(item, self._loop).result() for item in listeners
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

    def root_cause(self, error: JobError, where: str) -> JobError:
        """The client's error, or the proxy's own reason why it made no connection."""
        if self._refused is not None:
            host = self._refused.host
            return JobError(
                FetchReason.ADDRESS_REFUSED,
                f"{where} leads to {_printable(host)}, which is {self._refused.kind}: correct the "
                "source, or ask the operator's administrator to add the network to "
                "fetch.allowedNetworks",
            )
        if error.reason == FetchReason.NETWORK_ERROR and self._failure:
            return unreachable(where, self._failure)
        return error

    async def _listen(self, limit: int | None) -> str:
        """Listen on a free port and return its URL; `limit` bounds the bytes of a response."""
        accept = functools.partial(self._accept, limit)
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_BLOCK, backlog=64)
        self._servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for _ in range(_CLOSE_ROUNDS):
            # A connection that is being accepted becomes a task some iterations of the event loop
            # later, and an aborted one releases its socket in the next iteration.
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
        # The callback also closes the connection of a task that was cancelled before it started.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, client: Streams, limit: int | None) -> None:
        reader, writer = client
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                request = ProxyRequest.parse(await read_head(reader))
                upstream = await self._connect(request)
        except RefusedError as error:
            self._refused = error
            _respond(writer, "403 Forbidden")
        except ConnectionFailedError as error:
            self._failure = str(error)
            _respond(writer, "502 Bad Gateway")
        except (OSError, TimeoutError, EOFError, ValueError):
            _respond(writer, "400 Bad Request")
        else:
            self._failure = ""
            await _relay(client, upstream, request, limit)
        finally:
            await _finish(writer)

    async def _connect(self, request: ProxyRequest) -> Streams:
        """Connect to the host of a request, or to the configured upstream proxy for it."""
        proxy = self._upstream.proxy(request.scheme, request.host)
        if proxy is None:
            addresses = await self._allowed_addresses(request.host, request.port)
            upstream = await _open(addresses, request.host)
        else:
            await self._check_host_behind_proxy(request)
            addresses = await self._allowed_addresses(proxy.host, proxy.port)
            upstream = await _open(addresses, proxy.host, tls=proxy.tls)
        try:
            await request.send(*upstream, proxy)
        except BaseException:
            upstream[1].close()
            raise
        return upstream

    async def _check_host_behind_proxy(self, request: ProxyRequest) -> None:
        """Check the host if it resolves here; a name that only the upstream proxy knows passes."""
        try:
            await self._allowed_addresses(request.host, request.port)
        except ConnectionFailedError:
            return

    async def _allowed_addresses(self, host: str, port: int) -> list[tuple[str, int]]:
        """The allowed addresses of a host; raises RefusedError if there is none."""
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionFailedError(f"{_printable(host)} cannot be resolved") from error
        addresses = [str(entry[4][0]) for entry in entries]
        refusals = {address: self._networks.refusal(address) for address in addresses}
        allowed = [(address, port) for address, kind in refusals.items() if kind is None]
        if not allowed:
            raise RefusedError(host, next(kind for kind in refusals.values() if kind))
        return allowed


async def _open(addresses: list[tuple[str, int]], host: str, *, tls: bool = False) -> Streams:
    """Connect to the first address that accepts a connection."""
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
    raise ConnectionFailedError(f"{_printable(host)} does not accept connections")


async def _relay(
    client: Streams, upstream: Streams, request: ProxyRequest, limit: int | None
) -> None:
    """Copy both directions until either side closes its connection."""
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
    """Close a connection after its send buffer is empty."""
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


def _respond(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())


def _printable(host: str) -> str:
    """A host name for a message; a redirect may contain any text instead of a host name."""
    return host if _HOST.fullmatch(host) else "a host whose name is invalid"
