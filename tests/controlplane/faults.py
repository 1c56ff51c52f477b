"""A proxy in front of the API server that injects the faults of a busy or failing one."""

from __future__ import annotations

import asyncio
import json
import selectors
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from cluster.processes import DEADLINE_SECONDS

# Headers of one connection, which a proxy does not forward.
_HOP = {"connection", "content-length", "content-encoding", "host", "transfer-encoding"}
_WATCH_ANSWERS = {"outdated": 410, "unavailable": 503}


class Faults:
    """The fault that the proxy injects; None for none.

    - `unauthorized`: every request gets 401
    - `outdated`: the answer to every watch is 410
    - `unavailable`: the answer to every watch is 503
    - `error-500`, `error-429`: every watch gets an event of type ERROR with this code
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._token = user["token"]
        self._watches: set[asyncio.Task[Any]] = set()
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self.fault: str | None = None
        self.port = 0

    def kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig for the proxy."""
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "me"}}],
            "clusters": [
                {"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
            ],
            "users": [{"name": "me", "user": {"token": self._token}}],
        }
        file.write_text(yaml.safe_dump(body))
        return file

    def inject(self, fault: str | None) -> None:
        """Inject a fault from now on, and end the watches that are open."""
        self.fault = fault
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._watches])

    @contextmanager
    def serving(self) -> Iterator[Faults]:
        """Serve in a thread inside the block."""
        ready, stop = threading.Event(), asyncio.Event()
        thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._serve(ready, stop))
        )
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join()
            self._loop.run_until_complete(self._connections_closed())
            self._loop.close()

    async def _connections_closed(self) -> None:
        """TLS connections close after their session; the loop's own socket stays."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            # A selector has no event for this.
            while len(self._selector.get_map()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            application = web.Application(client_max_size=1 << 24)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(session, request)

            application.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            ready.set()
            await stop.wait()
            for task in self._watches:
                task.cancel()
            await asyncio.gather(*self._watches, return_exceptions=True)
            await runner.cleanup()

    async def _handle(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        watch = request.query.get("watch") == "true"
        if self.fault == "unauthorized":
            return _status(401)
        if watch and self.fault is not None:
            code = _WATCH_ANSWERS.get(self.fault)
            return _status(code) if code else await self._error(request)
        if not watch:
            return await self._forward(session, request)
        task = asyncio.ensure_future(self._forward(session, request))
        self._watches.add(task)
        try:
            return await task
        finally:
            self._watches.discard(task)

    async def _error(self, request: web.Request) -> web.StreamResponse:
        code = int(str(self.fault).removeprefix("error-"))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        line = json.dumps({"type": "ERROR", "object": _body(code)})
        await response.write(line.encode() + b"\n")
        return response

    async def _forward(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        timeout = aiohttp.ClientTimeout(total=None)
        async with session.request(
            request.method,
            self._server + request.raw_path,
            headers=headers,
            # Without a body, or else the client adds a content type that the server refuses.
            data=await request.read() or None,
            timeout=timeout,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
            if encoding := answer.headers.get("Content-Encoding"):
                kept["Content-Encoding"] = encoding
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with suppress(ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


def _body(code: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": f"an injected fault with code {code}",
        "reason": "Injected",
        "code": code,
    }


def _status(code: int) -> web.Response:
    return web.json_response(_body(code), status=code)
