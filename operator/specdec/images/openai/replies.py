"""What the endpoint and the proxy share: the list of models, clients that leave, failures."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec.images.openai.errors import ApiError, unavailable, unknown_model

# The POSTs of the endpoint.
GENERATING = ("/v1/completions", "/v1/chat/completions")
# A header and no field of the body, so that a gateway can set it without reading bodies.
SCOPE = "x-lookup-scope"
_REQUEST_ID, _ID_CHARACTERS = b"x-request-id", 128
_BLOCK = 64 << 10
_Result = TypeVar("_Result")


class Listing:
    """The routes below `/v1/models`, which list the one model that is served.

    Args:
        name: of the model.
        owner: of the model.
        longest: gives the most tokens of prompt and answer, or 0; None if it is unknown.
    """

    def __init__(
        self, name: str, owner: str, longest: Callable[[], Awaitable[int]] | None = None
    ) -> None:
        self._name, self._longest = name, longest
        self._model = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            # From this name, specdec's client derives which parameters it may send: see
            # `servers/openai_api.py`.
            "owned_by": owner,
        }

    def routes(self) -> tuple[Route, ...]:
        """The list, and one model by its name."""
        return (
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{name:path}", self._by_name, methods=["GET"]),
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [await self._described()]})

    async def _by_name(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self._name:
            raise unknown_model(name, self._name)
        return JSONResponse(await self._described())

    async def _described(self) -> dict[str, Any]:
        longest = await self._longest() if self._longest is not None else 0
        # The key is vLLM's; benchmarks read it.
        return {**self._model, "max_model_len": longest} if longest else self._model


def scope_of(headers: Headers) -> str | None:
    """The scope of a request's lookups; None without one.

    Raises:
        ApiError: there are two, of which a gateway may have set only one.
    """
    scopes = headers.getlist(SCOPE)
    if len(scopes) > 1:
        raise ApiError(f"the header {SCOPE} is there {len(scopes)} times; send it once")
    return scopes[0] if scopes else None


async def unless_left(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, which ends if the client leaves first; the body must be read.

    Raises:
        ClientDisconnect: the client has left.
    """
    answering = asyncio.ensure_future(work)
    # After the body, nothing but the end of the connection is received.
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        for each in (answering, leaving):
            each.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


def identified(application: ASGIApp) -> ASGIApp:
    """The application, whose answers have the header x-request-id: the client's, or a new one."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(_REQUEST_ID, b"")
        id_ = given[:_ID_CHARACTERS] or uuid.uuid4().hex.encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (_REQUEST_ID, id_)]}
            await send(message)

        await application(scope, receive, send_with_id)

    return answer


async def send_whole(body: bytes, send: Send) -> None:
    """Send a body in blocks, and wait until the client has read all but the last ones.

    A server writes a body that is sent at once into memory, and takes the next request.
    """
    for start in range(0, max(1, len(body)), _BLOCK):
        end = start + _BLOCK
        message = {"body": body[start:end], "more_body": end < len(body)}
        await send({"type": "http.response.body", **message})


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"retry-after": "1"} if error.status in (429, 503) else {}
    if error.close:
        headers["connection"] = "close"
    return JSONResponse(error.body(), error.status, headers)


async def _http_error(paths: Collection[str], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    paths = f"{' and '.join(paths)} with POST, and /v1/models with GET"
    message = f"{request.method} {request.url.path} is no operation of this server; use {paths}"
    return await _api_error(request, ApiError(message, status=error.status_code))


async def _disconnected(request: Request, error: Exception) -> Response:
    """A client that disconnects before its request is complete gets no response."""
    return Response(status_code=499)


async def _unexpected(request: Request, error: Exception) -> Response:
    return await _api_error(
        request, unavailable("the endpoint failed; its log has the cause, and a retry may succeed")
    )


def handlers(paths: Collection[str]) -> dict[Any, Any]:
    """What answers each exception; `paths` are those of POSTs, for messages."""
    return {
        ApiError: _api_error,
        ClientDisconnect: _disconnected,
        HTTPException: partial(_http_error, paths),
        Exception: _unexpected,
    }
