"""Requests to an endpoint in the same process, without sockets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from specdec.images.openai.app import Endpoint

COMPLETION = {"model": "llama", "prompt": "def f"}
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}
Json = dict[str, Any]


@asynccontextmanager
async def client(served: Endpoint) -> AsyncIterator[httpx.AsyncClient]:
    await served.templates.start()
    transport = httpx.ASGITransport(served.application())
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as result:
            yield result
    finally:
        await served.templates.close()


async def post(served: Endpoint, path: str, body: Json) -> httpx.Response:
    async with client(served) as http:
        return await http.post(f"/v1/{path}", json=body)


def events(response: httpx.Response) -> list[Json]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]
