"""Large bodies are parsed in a thread: on the event loop they held up streams and probes."""

import threading
from typing import Any

import pytest
from pydantic_core import from_json

from specdec.images.openai.off_loop import INLINE_BYTES
from unit.openai import test_proxy
from unit.openai.fake_backend import FakeBackend, endpoint, pieces
from unit.openai.in_process import client

SIZES = pytest.mark.parametrize("size", [1, INLINE_BYTES])


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads that have parsed a body."""
    seen: list[threading.Thread] = []

    def recorded(text: bytes, **options: Any) -> Any:
        seen.append(threading.current_thread())
        return from_json(text, **options)

    monkeypatch.setattr("specdec.images.openai.body.from_json", recorded)
    return seen


@SIZES
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_the_endpoint_parses_a_large_body_in_a_thread(
    path: str, size: int, threads: list[threading.Thread]
) -> None:
    text = "a" * size
    fields: dict[str, Any] = {"model": "llama", "prompt": text}
    if "chat" in path:
        fields = {"model": "llama", "messages": [{"role": "user", "content": text}]}
    async with client(endpoint(FakeBackend(pieces("b")))) as http:
        await http.post(path, json=fields)
    assert [thread is threading.main_thread() for thread in threads] == [size < INLINE_BYTES]


@SIZES
async def test_the_proxy_parses_a_large_body_in_a_thread(
    size: int, threads: list[threading.Thread]
) -> None:
    async with test_proxy.running(test_proxy.reply(b"{}")) as (_, _, http):
        await http.post(test_proxy.PATH, json={**test_proxy.BODY, "prompt": "a" * size})
    assert [thread is threading.main_thread() for thread in threads] == [size < INLINE_BYTES]
