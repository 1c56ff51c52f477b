"""The routes of the endpoint, as an ASGI application."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from specdec.openai.body import parse
from specdec.openai.chat import variables, without_first_token
from specdec.openai.errors import ApiError, overloaded, unknown_model
from specdec.openai.exchange import Exchange
from specdec.openai.load import read
from specdec.openai.metrics import Metrics
from specdec.openai.models import Chat, Completion
from specdec.openai.replies import HANDLERS, read_body
from specdec.openai.request import SCOPE, Served, Task, in_scope, prompt_of, task
from specdec.openai.settings import Settings
from specdec.openai.template import Templates
from specdec.openai.triton import ModelServer

_Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """The state of one process: its server, its templates, and its requests in flight."""

    def __init__(
        self,
        settings: Settings,
        backend: ModelServer,
        templates: Templates,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings, self.backend, self.templates = settings, backend, templates
        self.metrics = metrics or Metrics()
        self.draining = False
        self._created = int(time.time())
        self._in_flight = 0
        self._served: Served | None = None

    def application(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/models/{name:path}", self.model, methods=["GET"]),
                Route("/health/live", self.live, methods=["GET"]),
                Route("/health/ready", self.ready, methods=["GET"]),
                Route("/metrics", self.exposition, methods=["GET"]),
            ],
            exception_handlers=dict(HANDLERS),
        )

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
        settings = self.settings
        load = await read(settings.metrics_url, settings.model, self._in_flight)
        self.metrics.set_load(load, settings.served_name)
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def models(self, request: Request) -> Response:
        """The list of models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """One model by its name."""
        name = request.path_params["name"]
        if name != self.settings.served_name:
            raise unknown_model(name, self.settings.served_name)
        return JSONResponse(self._model())

    async def completions(self, request: Request) -> Response:
        """Answer a completion."""

        async def prepare(body: bytes, served: Served) -> Task:
            parsed = parse(body, Completion)
            return task(parsed, prompt_of(parsed), served, self.settings)

        return await self._generate(request, prepare)

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""

        async def prepare(body: bytes, served: Served) -> Task:
            parsed = parse(body, Chat)
            # Refuse what cannot be served before a template is rendered.
            task(parsed, "-", served, self.settings)
            form = self.templates.form
            rendered = await self.templates.render(variables(parsed, form))
            prompt = without_first_token(
                rendered, form, adds_special_tokens=served.add_special_tokens
            )
            return task(parsed, prompt, served, self.settings)

        return await self._generate(request, prepare)

    async def _generate(
        self, request: Request, prepare: Callable[[bytes, Served], Awaitable[Task]]
    ) -> Response:
        """Admit a request, and hand it to an exchange, which calls `_leave` at its end."""
        # A route also matches its path with a line break behind it.
        limits, path = self.settings.limits, request.scope["path"].rstrip()
        if self._in_flight >= limits.in_flight:
            self.metrics.requests.labels(path, 429).inc()
            raise overloaded(
                f"{limits.in_flight} requests are being answered, the limit of this server; "
                "try again later"
            )
        self._enter()
        try:
            body = await read_body(request, limits)
            served = await self._declaration()
            prepared = in_scope(await prepare(body, served), request.headers.get(SCOPE), served)
        except BaseException as error:
            status = error.status if isinstance(error, ApiError) else 499
            self._leave(path, status)
            raise
        return Exchange(self, prepared, served, path, self._leave)

    async def _declaration(self) -> Served:
        """The declaration of the model, which changes only when the pod is replaced."""
        if self._served is None:
            self._served = await self.backend.served()
        return self._served

    def _enter(self) -> None:
        self._in_flight += 1
        self.metrics.in_flight.inc()

    def _leave(self, path: str, status: int) -> None:
        self._in_flight -= 1
        self.metrics.in_flight.dec()
        self.metrics.requests.labels(path, status).inc()

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.settings.served_name,
            "object": "model",
            "created": self._created,
            "owned_by": "specdec",
        }
