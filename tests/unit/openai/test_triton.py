"""The Triton client with a scripted gRPC server: pieces, errors and lost servers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from cluster.processes import until
from specdec.client.answer import Counts
from specdec.client.connection import Connection
from specdec.client.model_names import ENSEMBLE, TARGET
from specdec.client.request import Request
from specdec.images.openai import piece_layout
from specdec.images.openai import triton as client
from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import ApiError
from specdec.images.openai.triton import Triton, refused
from unit.client import fake_server
from unit.client.fake_server import INPUTS, Script

BLS = "tensorrt_llm_bls"


async def pieces(script: Script, request: Request) -> list[Piece]:
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), BLS) as triton:
            served = await triton.served()
            return [piece async for piece in triton.pieces(request, served)]
    finally:
        server.stop(None)


async def test_pieces_have_text_and_counts() -> None:
    script = Script(chunks=("ä", ""), counts=((4, 3), (8, 5)))
    first, second = await pieces(script, Request("p", draft_tokens=2))
    assert (first.text, first.counts) == ("ä", Counts(4, 3))
    assert (second.text, second.counts) == ("", Counts(8, 5))
    (message,) = script.seen
    assert message.model_name == BLS
    assert {tensor.name for tensor in message.inputs} >= {"text_input", "num_draft_tokens"}


async def test_protobuf_reads_only_the_first_and_the_last_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[bytes] = []
    parse = piece_layout.parse

    def recorded(data: bytes) -> Any:
        messages.append(data)
        return parse(data)

    monkeypatch.setattr(piece_layout, "parse", recorded)
    server, url = fake_server.serve(Script(chunks=[f"piece {i}" for i in range(50)]))
    try:
        async with Triton(Connection(url), BLS) as triton:
            served = await triton.served()
            for _ in range(3):
                texts = [piece.text async for piece in triton.pieces(Request("p"), served)]
                assert texts == [f"piece {i}" for i in range(50)]
    finally:
        server.stop(None)
    # Protobuf parses the message that teaches the layout, and the end of each answer.
    assert len(messages) == 1 + 3


async def test_count_of_a_prompt_goes_on_without_its_caller() -> None:
    """The client never cancels a unary request, because that can crash Triton 2.51."""
    script = Script()
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), BLS) as triton:
            count = asyncio.create_task(triton.prompt_tokens("p"))
            await asyncio.to_thread(script.asked.wait, 10)
            count.cancel()
            with pytest.raises(asyncio.CancelledError):
                await count
            script.answers.set()
            assert await triton.prompt_tokens("p") == 7
    finally:
        server.stop(None)
    assert script.awaited == [True, True]


def endless() -> Iterator[str]:
    return map(str, itertools.count())


async def left(script: Script, ended: Callable[[], bool], model: str = BLS) -> None:
    """Read the first piece of an answer, leave it, and wait until its stream has ended."""
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), model) as triton:
            served = await triton.served()
            async with aclosing(triton.pieces(Request("p"), served)) as answer:
                await anext(answer)
            await asyncio.to_thread(until, ended, lambda: "the stream has not ended")
    finally:
        server.stop(None)


async def test_request_of_a_client_that_left_is_stopped_and_not_cancelled() -> None:
    """A cancelled stream can crash Triton 2.51, or block all of its streams."""
    script = Script(chunks=endless(), inputs=(*INPUTS, "stop"))
    await left(script, script.ended.is_set)
    request, stop = script.seen
    assert script.stopped == {request.id} != {""}
    assert stop.model_name == BLS
    assert not script.cancelled.is_set()


async def test_stop_of_an_ensemble_is_a_call_of_its_engine() -> None:
    script = Script(chunks=endless())
    await left(script, script.ended.is_set, ENSEMBLE)
    request, stop = script.seen
    assert (stop.model_name, stop.id) == (TARGET, request.id)
    assert not script.cancelled.is_set()


async def test_request_that_does_not_stop_in_time_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_STOP_SECONDS", 0.1)
    script = Script(chunks=endless(), inputs=(*INPUTS, "stop"), stops=False)
    await left(script, script.cancelled.is_set)


async def test_request_is_cancelled_where_no_model_can_stop_it() -> None:
    script = Script(chunks=endless())
    await left(script, script.cancelled.is_set)
    assert len(script.seen) == 1


async def test_refusal_of_the_server_is_an_error() -> None:
    with pytest.raises(ApiError, match=r"^max_tokens is 0: set it to 1 or more$") as caught:
        await pieces(Script(error="max_tokens is 0: set it to 1 or more"), Request("p"))
    assert caught.value.status == 400


async def test_lost_server_is_unavailable_and_not_ready() -> None:
    server, url = fake_server.serve(Script())
    async with AsyncExitStack() as stack:
        triton = await stack.enter_async_context(Triton(Connection(url), BLS))
        served = await triton.served()
        server.stop(None).wait()
        with pytest.raises(ApiError) as caught:
            _ = [piece async for piece in triton.pieces(Request("p"), served)]
        assert caught.value.status == 503
        assert not await triton.ready()
    async with Triton(Connection(url), BLS) as other:
        with pytest.raises(ApiError) as caught:
            await other.served()
        assert caught.value.status == 503


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("text_input has 600 tokens, more than the limit of 511 for a prompt: send", 400,
         "context_length_exceeded"),
        ("temperature is -1: set it to 0 or more", 400, None),
        ("Exceeds maximum queue size", 429, "rate_limit_exceeded"),
        ("tensorrt_llm: Maximum queue size of 16 has been reached", 429, "rate_limit_exceeded"),
        ("as many long prompts waiting as it has room for: send this one again later", 429,
         "rate_limit_exceeded"),
        ("tensorrt_llm: its process ended during the call: ask again", 503, "server_unavailable"),
        ("tensorrt_llm: Stub process 'tensorrt_llm_0_0' is not healthy.", 503,
         "server_unavailable"),
        ("Request for unknown model: 'tensorrt_llm_bls' is not ready", 503, "server_unavailable"),
    ],
)  # fmt: skip
def test_message_of_the_server_has_a_status(message: str, status: int, code: str | None) -> None:
    error = refused(message)
    assert (error.status, error.code, str(error)) == (status, code, message)
