"""Bodies of requests, and replies to failures, as the endpoint and the proxy share them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from specdec.openai.errors import ApiError, too_large, unavailable
from specdec.openai.settings import Limits

GENERATING = ("/v1/completions", "/v1/chat/completions")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        ApiError: it is too large or too slow.
    """
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise too_large(limits.body_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise too_large(limits.body_bytes)
    except TimeoutError:
        raise ApiError(
            f"the body did not arrive within {limits.body_seconds:g} s; send it faster",
            status=408,
            code="request_timeout",
        ) from None
    return bytes(body)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 -- registered for this class
    headers = {"retry-after": "1"} if error.status in (429, 503) else None
    return JSONResponse(error.body(), error.status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for this class
    paths = f"{' and '.join(GENERATING)} with POST, and /v1/models with GET"
    message = f"{request.method} {request.url.path} is no operation of this server; use {paths}"
    return await _api_error(request, ApiError(message, status=error.status_code))


async def _disconnected(request: Request, error: Exception) -> Response:
    """A client that disconnects before its request is complete gets no response."""
    return Response(status_code=499)


async def _unexpected(request: Request, error: Exception) -> Response:
    return await _api_error(
        request, unavailable("the endpoint failed; its log has the cause, and a retry may succeed")
    )


HANDLERS: Mapping[Any, Any] = {
    ApiError: _api_error,
    ClientDisconnect: _disconnected,
    HTTPException: _http_error,
    Exception: _unexpected,
}
