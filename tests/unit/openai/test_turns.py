"""Chats that wait for the chat template, and clients that leave while they wait."""

import asyncio
import json
import signal
from contextlib import suppress

import pytest

from specdec.images.openai import template
from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError
from specdec.images.openai.template import Templates
from specdec.images.openai.turns import Turns
from unit.openai.fake_backend import FakeBackend, endpoint, pieces
from unit.openai.listening import listening
from unit.openai.test_http import exchange

_DEADLINE = 60
# A conversation whose rendering ends only with the process.
SLOW = (
    "{% if messages[0].content == 'slow' %}{% for a in range(99999) %}{% for b in range(99999) %}"
)
TEMPLATE = f"{SLOW}{{% endfor %}}{{% endfor %}}{{% endif %}}{{{{ messages[0].content }}}}"


def conversation(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def body(text: str) -> bytes:
    chat = json.dumps({"model": "llama", **conversation(text)}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(chat)}\r\n\r\n"
    return head.encode() + chat


async def test_short_chats_come_first_and_the_longest_is_refused() -> None:
    turns, order = Turns(2, _DEADLINE), list[str]()
    free = asyncio.Event()

    async def chat(name: str, size: int) -> None:
        async with turns.turn(size):
            await free.wait()
            order.append(name)

    tasks = [
        asyncio.ensure_future(chat(name, size))
        for name, size in (("first", 9), ("long", 8), ("longest", 9), ("short", 1))
    ]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=_DEADLINE)
    assert done == {tasks[2]}
    error = tasks[2].exception()
    assert isinstance(error, ApiError)
    assert error.status == 429
    free.set()
    await asyncio.gather(tasks[0], tasks[1], tasks[3])
    assert order == ["first", "short", "long"]


async def test_a_wait_has_a_limit_and_a_client_that_leaves_does_not_keep_its_turn() -> None:
    turns = Turns(9, 0.01)
    async with turns.turn(1):
        with pytest.raises(ApiError, match="try again later"):
            async with turns.turn(1):
                pass
        left = asyncio.ensure_future(turns.turn(1).__aenter__())
        while not turns._waiting:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0)
    # The turn has been passed on to the client that leaves now.
    left.cancel()
    with suppress(asyncio.CancelledError):
        await left
    async with turns.turn(1):
        pass


async def test_a_client_that_leaves_when_its_turn_comes_gets_none() -> None:
    turns = Turns(9, _DEADLINE)
    async with turns.turn(1):
        left, next_one = (asyncio.ensure_future(turns.turn(1).__aenter__()) for _ in range(2))
        while len(turns._waiting) < 2:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0)
        left.cancel()
    async with asyncio.timeout(_DEADLINE):
        await next_one
    assert left.cancelled() or left.cancelling()


async def test_a_client_that_leaves_ends_its_rendering() -> None:
    made = Templates(ChatFormat(TEMPLATE), _DEADLINE)
    await made.start()
    try:
        process = made._process
        assert process is not None
        rendering = asyncio.ensure_future(made.render(conversation("slow")))
        while not made._turns._busy:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0)
        rendering.cancel()
        async with asyncio.timeout(_DEADLINE):
            assert isinstance(
                (await asyncio.gather(rendering, return_exceptions=True))[0],
                asyncio.CancelledError,
            )
            assert process.returncode is not None
            assert await made.render(conversation("quick")) == "quick"
    finally:
        await made.close()


async def test_a_client_that_leaves_late_does_not_end_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(template, "_LEFT_SECONDS", _DEADLINE)
    made = Templates(ChatFormat(TEMPLATE), _DEADLINE)
    await made.start()
    try:
        process = made._process
        rendering = asyncio.ensure_future(made.render(conversation("quick")))
        while not made._turns._busy:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0)
        rendering.cancel()
        await asyncio.gather(rendering, return_exceptions=True)
        assert made._process is process
        assert await made.render(conversation("another")) == "another"
    finally:
        await made.close()


async def test_a_process_without_processor_time_is_no_fault_of_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy node, a short chat got status 400 with the advice to send a shorter one."""
    monkeypatch.setattr(template, "_REAL_SECONDS", 0.1)
    made = Templates(ChatFormat(TEMPLATE), _DEADLINE)
    await made.start()
    try:
        assert made._process is not None
        made._process.send_signal(signal.SIGSTOP)
        with pytest.raises(ApiError, match="gave no prompt") as raised:
            await made.render(conversation("quick"))
        assert raised.value.status == 503
        monkeypatch.setattr(template, "_REAL_SECONDS", _DEADLINE)
        assert await made.render(conversation("quick")) == "quick"
    finally:
        await made.close()


async def test_chats_of_clients_that_left_are_not_rendered() -> None:
    """20 chats whose clients had left blocked the template for 40 s."""
    served = endpoint(FakeBackend(pieces("ok")))
    templates = Templates(ChatFormat(TEMPLATE), _DEADLINE)
    served.templates = templates
    await templates.start()
    async with listening(served.application()) as port:
        try:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(body("slow"))
                await writer.drain()
                writer.close()
            # It has a time limit of its own, far below that of a rendering.
            async with asyncio.timeout(_DEADLINE / 2):
                status, _ = await exchange(port, body("quick"))
            assert status == 200
        finally:
            await templates.close()


async def test_an_infinite_number_is_refused() -> None:
    made = Templates(ChatFormat(TEMPLATE))
    await made.start()
    try:
        with pytest.raises(ApiError, match="a number that is too large"):
            await made.render({**conversation("quick"), "x": float("inf")})
        assert await made.render(conversation("quick")) == "quick"
    finally:
        await made.close()
