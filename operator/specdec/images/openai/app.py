"""The routes of the endpoint, as an ASGI application."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specdec.images.openai.body import parse
from specdec.images.openai.chat import variables, without_first_token
from specdec.images.openai.errors import ApiError
from specdec.images.openai.exchange import Exchange
from specdec.images.openai.intake import Intake, status_of
from specdec.images.openai.load import read
from specdec.images.openai.metrics import Metrics
from specdec.images.openai.models import Chat, Completion
from specdec.images.openai.off_loop import off_loop
from specdec.images.openai.replies import (
    GENERATING,
    Listing,
    handlers,
    identified,
    scope_of,
    unless_left,
)
from specdec.images.openai.request import Served, Task, in_scope, prompts_of, task
from specdec.images.openai.settings import EndpointSettings
from specdec.images.openai.template import Templates
from specdec.images.openai.triton import ModelServer

_Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """The state of one process: its server, its templates, and its requests in flight."""

    def __init__(
        self,
        settings: EndpointSettings,
        backend: ModelServer,
        templates: Templates,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings, self.backend, self.templates = settings, backend, templates
        self.metrics = metrics or Metrics()
        self.draining = False
        self._listing = Listing(settings.served_name, "specdec", self._longest)
        self._counters = settings.kind.counters
        self._intake = Intake(settings.limits, self.metrics)
        self._served: Served | None = None

    def application(self) -> ASGIApp:
        """The ASGI application."""
        routes = Starlette(
            routes=[
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                *self._listing.routes(),
                Route("/health", self.ready, methods=["GET"]),
                Route("/health/live", self.live, methods=["GET"]),
                Route("/health/ready", self.ready, methods=["GET"]),
                Route("/metrics", self.exposition, methods=["GET"]),
            ],
            exception_handlers=handlers(GENERATING),
        )
        # A redirection would name this process and not the gateway before it.
        routes.router.redirect_slashes = False
        return identified(routes)

    async def live(self, request: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("live")

    async def ready(self, request: Request) -> Response:
        """The server accepts requests, and the process is not about to end."""
        if self.draining or not await self.backend.ready():
            return PlainTextResponse("not ready", 503)
        return PlainTextResponse("ready")

    async def exposition(self, request: Request) -> Response:
        """The metrics, and the load of the server under the names that routers read."""
        settings, running = self.settings, self._intake.in_flight
        load = await read(settings.metrics_url, self._counters, settings.model, running)
        self.metrics.set_load(load, settings.served_name)
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def completions(self, request: Request) -> Response:
        """Answer a completion."""

        def prepared(body: bytes, served: Served) -> list[Task]:
            parsed = parse(body, Completion)
            prompts = prompts_of(parsed, self.settings.limits.prompts)
            return [task(parsed, prompt, served, self.settings) for prompt in prompts]

        async def prepare(body: bytes, served: Served) -> list[Task]:
            return await off_loop(len(body), prepared, body, served)

        return await self._generate(request, prepare)

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""

        form = self.templates.form

        def checked(body: bytes, served: Served) -> tuple[Chat, dict[str, Any]]:
            parsed = parse(body, Chat)
            # Refuse what cannot be served before a template is rendered.
            task(parsed, "-", served, self.settings)
            return parsed, variables(parsed, form)

        def prepared(parsed: Chat, rendered: str, served: Served) -> Task:
            prompt = without_first_token(
                rendered, form, adds_special_tokens=served.add_special_tokens
            )
            return task(parsed, prompt, served, self.settings)

        async def prepare(body: bytes, served: Served) -> list[Task]:
            parsed, values = await off_loop(len(body), checked, body, served)
            rendered = await self.templates.render(values, len(body))
            return [await off_loop(len(rendered), prepared, parsed, rendered, served)]

        return await self._generate(request, prepare)

    async def _generate(
        self, request: Request, prepare: Callable[[bytes, Served], Coroutine[Any, Any, list[Task]]]
    ) -> Response:
        """Let a request in, and hand it to an exchange, which calls `leave` at its end."""
        # A route also matches its path with a line break behind it.
        path = request.scope["path"].rstrip()
        body, leave = await self._intake.enter(request, path)
        try:
            scope = scope_of(request.headers)
            served = await self._declaration()
            tasks = await unless_left(request, prepare(body, served))
            # Each prompt takes a place.
            free = self._intake.take(len(tasks) - 1)
        except BaseException as error:
            leave(status_of(error))
            raise

        def end(status: int) -> None:
            free()
            leave(status)

        return Exchange(self, [in_scope(each, scope, served) for each in tasks], served, end)

    async def _longest(self) -> int:
        try:
            return (await self._declaration()).max_seq_len
        except ApiError:
            return 0

    async def _declaration(self) -> Served:
        """The declaration of the model, which changes only when the pod is replaced."""
        if self._served is None:
            self._served = await self.backend.served()
        return self._served
