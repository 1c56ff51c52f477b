"""The routes of the proxy, as an ASGI application for two ports: clients, and metrics."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from specdec.images.openai.errors import ApiError, refusal, unavailable
from specdec.images.openai.intake import Intake, Leave
from specdec.images.openai.limits import ANSWER_BYTES, Limits
from specdec.images.openai.metrics import WAITING, Metrics
from specdec.images.openai.off_loop import off_loop
from specdec.images.openai.proxy.checks import Names, checked
from specdec.images.openai.proxy.upstream import Reply, Upstream
from specdec.images.openai.replies import (
    Listing,
    handlers,
    identified,
    scope_of,
    send_whole,
    unless_left,
)
from specdec.servers.kind import ServerKind

_HEALTH_SECONDS = 2.0
_STREAM, _END = "text/event-stream", b"\n\n"
_OK, _BAD_REQUEST, _FAILED = 200, 400, 500


@dataclass(frozen=True)
class ProxySettings:
    """What the proxy serves.

    Attributes:
        served_name: the model's name for clients.
        upstream_model: the model's name in the server.
        metrics_port: the port that has metrics only.
        limits: of one process.
        kind: of the server.
    """

    served_name: str
    upstream_model: str
    metrics_port: int
    limits: Limits
    kind: ServerKind


class Proxy:
    """The state of one process: its server, and its requests in flight."""

    def __init__(self, settings: ProxySettings, upstream: Upstream) -> None:
        self.settings, self.upstream, self.metrics = settings, upstream, Metrics()
        server = settings.kind.serving.proxy
        if server is None:
            raise ValueError(f"--kind is {settings.kind.name}, which has no proxy; give another")
        self._server, self._operations = server, settings.kind.bodies
        self.draining = False
        self._names = Names(settings.upstream_model, settings.served_name)
        self._listing = Listing(settings.served_name, server.owner)
        self._counters = settings.kind.counters
        self._intake = Intake(settings.limits, self.metrics)
        self._answer_bytes = 0

    def application(self) -> ASGIApp:
        """The ASGI application, which selects its routes by the port."""
        paths = tuple(self._operations)
        clients = _routes(
            paths,
            *(Route(path, partial(self.generate, path), methods=["POST"]) for path in paths),
            *self._listing.routes(),
            Route("/health", self.ready, methods=["GET"]),
            Route("/health/live", self.live, methods=["GET"]),
            Route("/health/ready", self.ready, methods=["GET"]),
        )
        metrics = _routes(paths, Route("/metrics", self.exposition, methods=["GET"]))

        async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
            own = scope["server"][1] == self.settings.metrics_port
            await (metrics if own else clients)(scope, receive, send)

        return identified(by_port)

    async def live(self, request: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("live")

    async def ready(self, request: Request) -> Response:
        """The server reports itself as healthy, and the process is not about to end."""
        if self.draining or not await self._healthy():
            return PlainTextResponse("not ready", 503)
        return PlainTextResponse("ready")

    async def exposition(self, request: Request) -> Response:
        """The metrics of the proxy and those of the server, which some releases lack."""
        page = await self._page()
        # If the server does not respond, a router must not take the pod for an idle one.
        current = None
        # The page of vLLM has these gauges itself.
        if page is not None and WAITING not in self._counters.gauges:
            text, running = page.decode(errors="replace"), self._intake.in_flight
            current = self._counters.load(text, self.settings.upstream_model, running)
        self.metrics.set_load(current, self.settings.served_name)
        own = generate_latest(self.metrics.registry)
        return Response(own + (page or b""), media_type=CONTENT_TYPE_LATEST)

    async def generate(self, path: str, request: Request) -> Response:
        """Pass a request on to a path, and pass its answer back as it arrives."""
        try:
            return await self._generate(path, request)
        except ApiError as error:
            error.named = self._operations[path].named_events
            raise

    async def _generate(self, path: str, request: Request) -> Response:
        scope_of(request.headers)
        body, leave = await self._intake.enter(request, path)
        state = _State()
        # At its end, the stack closes the connection to the server, then counts the request as
        # ended.
        async with AsyncExitStack() as stack:
            stack.callback(self._end, state, leave)
            try:
                return await unless_left(request, self._answer(path, body, stack, state))
            except ApiError as error:
                state.status = error.status
                raise
            except TimeoutError:
                failure = _timed_out(self.settings.limits.seconds)
                state.status = failure.status
                raise failure from None

    async def _answer(
        self, path: str, body: bytes, stack: AsyncExitStack, state: "_State"
    ) -> Response:
        """The answer, which takes over the stack, and closes the stack at its end."""
        settings, operation = self.settings, self._operations[path]
        passed = await off_loop(
            len(body), checked, operation.body, body, settings.served_name, settings.upstream_model
        )
        stack.callback(self._intake.take(passed.answers - 1))
        request = self.upstream.request("POST", path, settings.limits.seconds, passed.body)
        connection = await stack.enter_async_context(AsyncExitStack())
        reply = await connection.enter_async_context(request)
        if reply.status != _OK:
            error = await reply.read()
            hidden = operation.hides_refusals and reply.status == _FAILED
            at_fault = hidden and await self._healthy()
            raise _refused(_BAD_REQUEST if at_fault else reply.status, error)
        if reply.content_type.startswith(_STREAM):
            events = self._events(reply, state, named=operation.named_events)
            return _Stream(events, stack.pop_all())
        whole = self._names.replaced(await reply.read(partial(self._hold, state)))
        # The client may read slowly, but the server has ended this request.
        await connection.aclose()
        state.status = reply.status
        return _Whole(whole, reply.content_type, stack.pop_all())

    def _hold(self, state: "_State", size: int) -> None:
        """Count bytes of an answer until its request ends."""
        if self._answer_bytes + size > ANSWER_BYTES:
            raise unavailable(
                f"the answers that are being sent have {ANSWER_BYTES} bytes; try again later"
            )
        state.answer_bytes += size
        self._answer_bytes += size

    def _end(self, state: "_State", leave: Leave) -> None:
        self._answer_bytes -= state.answer_bytes
        leave(state.status)

    async def _events(self, reply: Reply, state: "_State", *, named: bool) -> AsyncIterator[bytes]:
        """The events of an answer, each as a whole; a failure is the last event."""
        rest = b""
        try:
            async for part in reply.parts():
                events, end, rest = (rest + part).rpartition(_END)
                if end:
                    yield self._names.replaced(events) + end
            state.status = reply.status
            if rest:
                yield self._names.replaced(rest)
        except (ApiError, TimeoutError) as error:
            seconds = self.settings.limits.seconds
            failure = error if isinstance(error, ApiError) else _timed_out(seconds)
            state.status, failure.named = failure.status, named
            yield failure.event()

    async def _healthy(self) -> bool:
        try:
            async with self.upstream.request("GET", self._server.health, _HEALTH_SECONDS) as reply:
                return reply.status == _OK
        except (ApiError, TimeoutError):
            return False

    async def _page(self) -> bytes | None:
        """The server's metrics; empty if its release has none, None if it does not answer."""
        try:
            async with self.upstream.request("GET", self._server.page, _HEALTH_SECONDS) as reply:
                return await reply.read() if reply.status == _OK else b""
        except (ApiError, TimeoutError):
            return None


class _Whole(Response):
    """A whole answer that ends its request when it is sent."""

    def __init__(self, body: bytes, media_type: str, stack: AsyncExitStack) -> None:
        super().__init__(body, media_type=media_type)
        self._stack = stack

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            await send_whole(bytes(self.body), send)


class _Stream(StreamingResponse):
    """A stream that ends its request, also if the client leaves before the first event."""

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(events, media_type=_STREAM)
        self._stack = stack

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


@dataclass
class _State:
    """The status that a request is counted with, and the bytes of its answer in memory.

    Status 499 is a client that disconnected.
    """

    status: int = 499
    answer_bytes: int = 0


def _routes(paths: tuple[str, ...], *routes: Route) -> Starlette:
    made = Starlette(routes=list(routes), exception_handlers=handlers(paths))
    # A redirection would name this process and not the gateway before it.
    made.router.redirect_slashes = False
    return made


def _refused(status: int, body: bytes) -> ApiError:
    """The server's error in OpenAI's shape; its own shape has the fields at the top level."""
    try:
        value = json.loads(body)
        message = str(value.get("message") or value["error"]["message"])
    except (ValueError, AttributeError, KeyError, TypeError):
        message = "the server refused the request without a message"
    if status >= 500:
        return unavailable(f"{message}; try again later")
    return refusal(message) if status == _BAD_REQUEST else ApiError(message, status=status)


def _timed_out(seconds: float) -> ApiError:
    return ApiError(
        f"the answer took longer than {seconds:g} s; request fewer tokens",
        status=504,
        kind="server_error",
        code="timeout",
    )
