"""The Triton client with a scripted gRPC server: pieces, errors and lost servers."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.client.answer import Counts
from specdec.client.connection import Connection
from specdec.images.openai import triton as client
from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import ApiError
from specdec.images.openai.triton import Triton, new_part, refused
from specdec.servers.bls.requests import REQUESTS
from specdec.servers.chunk import NewText
from specdec.servers.kind import kind
from specdec.servers.request import Request
from specdec.triton.model_names import ENSEMBLE, TARGET
from unit.client import fake_server
from unit.client.fake_server import INPUTS, Script

BLS = "tensorrt_llm_bls"


async def pieces(script: Script, request: Request) -> list[Piece]:
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), BLS, REQUESTS) as triton:
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


async def test_pieces_of_any_size_arrive_whole() -> None:
    texts = ["x" * size for size in (0, 1, 70_000, 5 << 20)]
    answer = await pieces(Script(chunks=texts), Request("p"))
    assert [piece.text for piece in answer] == texts


async def test_count_of_a_prompt_goes_on_without_its_caller() -> None:
    """The client never cancels a unary request, because that can crash Triton 2.51."""
    script = Script()
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), BLS, REQUESTS) as triton:
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
        async with Triton(Connection(url), model, REQUESTS) as triton:
            served = await triton.served()
            async with aclosing(triton.pieces(Request("p"), served)) as answer:
                await anext(answer)
            await asyncio.to_thread(until, ended, lambda: "the stream has not ended")
    finally:
        server.stop(None)


async def test_answers_that_are_not_read_do_not_hold_up_others() -> None:
    sent = 0

    def large() -> Iterator[str]:
        nonlocal sent
        while True:
            yield "x" * 8192
            sent += 1

    script = Script()
    server, url = fake_server.serve(script)
    try:
        async with AsyncExitStack() as stack:
            triton = await stack.enter_async_context(Triton(Connection(url), BLS, REQUESTS))
            served = await triton.served()
            for _ in range(3):
                script.chunks = large()
                unread = triton.pieces(Request("p"), served)
                await anext(await stack.enter_async_context(aclosing(unread)))
            # A window has 64 KiB.
            await asyncio.to_thread(until, lambda: sent >= 3 * 7, lambda: f"{sent} were sent")
            script.chunks = ("new",)
            assert [piece.text async for piece in triton.pieces(Request("p"), served)] == ["new"]
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


async def test_reader_that_is_cancelled_does_not_cancel_its_stream() -> None:
    """gRPC's library cancels a call whose reader is cancelled while it waits for a message."""
    waits, go = threading.Event(), threading.Event()

    def held() -> Iterator[str]:
        yield "a"
        waits.set()
        go.wait(DEADLINE_SECONDS)
        yield "b"

    script = Script(chunks=held(), inputs=(*INPUTS, "stop"))
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), BLS, REQUESTS) as triton:
            answer = triton.pieces(Request("p"), await triton.served())
            assert (await anext(answer)).text == "a"
            reading = asyncio.ensure_future(anext(answer))
            assert await asyncio.to_thread(waits.wait, DEADLINE_SECONDS)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await asyncio.to_thread(until, lambda: bool(script.stopped), lambda: "no stop arrived")
            go.set()
            ends = (script.ended, script.cancelled)
            await asyncio.to_thread(until, lambda: any(end.is_set() for end in ends), lambda: "")
    finally:
        server.stop(None)
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
        triton = await stack.enter_async_context(Triton(Connection(url), BLS, REQUESTS))
        served = await triton.served()
        server.stop(None).wait()
        with pytest.raises(ApiError) as caught:
            _ = [piece async for piece in triton.pieces(Request("p"), served)]
        assert caught.value.status == 503
        assert not await triton.ready()
    async with Triton(Connection(url), BLS, REQUESTS) as other:
        with pytest.raises(ApiError) as caught:
            await other.served()
        assert caught.value.status == 503


def broken() -> Iterator[str]:
    yield "a"
    raise RuntimeError("the script is broken")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (Script(silent=True), "ended the answer early"),
        (Script(chunks=broken()), "not reachable .*the script is broken"),
    ],
)
async def test_answer_without_its_end_is_unavailable(script: Script, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        await pieces(script, Request("p"))
    assert caught.value.status == 503


async def test_server_that_stops_in_an_answer_is_unavailable() -> None:
    server, url = fake_server.serve(Script(chunks=endless()))
    async with Triton(Connection(url), BLS, REQUESTS) as triton:
        answer = triton.pieces(Request("p"), await triton.served())
        await anext(answer)
        server.stop(None)
        with pytest.raises(ApiError) as caught:
            _ = [piece async for piece in answer]
    assert caught.value.status == 503


async def test_connection_that_reaches_its_age_is_replaced_and_no_answer_is_lost() -> None:
    go = threading.Event()

    def held() -> Iterator[str]:
        yield "a"
        go.wait(DEADLINE_SECONDS)
        yield "b"

    script = Script(chunks=held())
    age = {"max_connection_age_ms": 50, "max_connection_age_grace_ms": 60_000}
    server, url = fake_server.serve(script, **age)
    try:
        async with Triton(Connection(url), BLS, REQUESTS) as triton:
            served = await triton.served()
            old = triton.pieces(Request("p"), served)
            assert (await anext(old)).text == "a"
            script.chunks = ("new",)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while len(script.peers) < 3:
                    answer = [piece.text async for piece in triton.pieces(Request("p"), served)]
                    assert answer == ["new"]
            # The answer on the first connection continues.
            go.set()
            assert [piece.text async for piece in old] == ["b"]
    finally:
        server.stop(None)


async def test_lost_server_is_tried_again_at_a_constant_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With gRPC's own delays, the last of these attempts would come hours after the first."""
    monkeypatch.setattr(client, "_RECONNECT_MS", 20)
    attempts = 0
    answer: list[str] = []
    enough = asyncio.Event()

    def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()
        if attempts == 25:
            enough.set()

    refusing = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = refusing.sockets[0].getsockname()[1]
    async with Triton(Connection(f"127.0.0.1:{port}"), BLS, REQUESTS) as triton:
        assert not await triton.ready()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await enough.wait()
            refusing.close()
            await refusing.wait_closed()
            server, _ = fake_server.serve(Script(), port)
            try:
                while not answer:
                    answer = await texts(triton)
            finally:
                server.stop(None)
    assert answer == ["a", "b"]


async def texts(triton: Triton) -> list[str]:
    """Return the texts of an answer, or none if the server is not reachable."""
    try:
        served = await triton.served()
        return [piece.text async for piece in triton.pieces(Request("p"), served)]
    except ApiError:
        return []


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
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


@pytest.mark.parametrize(
    ("message", "longest", "limit", "detail"),
    [
        ("text_input has 600 tokens, more than the limit of 511 for a prompt: send a shorter one",
         512, "512 tokens", "It has 600 tokens, more than the limit of 511 for a "
         "prompt: send a shorter one"),
        ("Prompt length (600) exceeds maximum input length (511).", 0,
         "exceeded", "Prompt length (600) exceeds maximum input length (511)."),
        ("text_input has 99 tokens, and the model has room for a prompt of 9 (max_model_len)", 10,
         "10 tokens", "It has 99 tokens, and the model has room for a prompt of 9 "
         "(max_model_len)"),
    ],
)  # fmt: skip
def test_prompt_that_is_too_long_has_openais_wording(
    message: str, longest: int, limit: str, detail: str
) -> None:
    error = refused(message, longest)
    assert (error.status, error.code) == (400, "context_length_exceeded")
    begin = f"This model's maximum context length is {limit}. However, the prompt is too long."
    assert str(error) == f"{begin} {detail}"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a", "ab", "abc"), ("a", "b", "c")),
        # The second token completes a character whose first bytes came with the first token.
        (("a\ufffd", "a\u00e4", "a\u00e4b"), ("a", "\u00e4", "b")),
        # A character that is still incomplete at the end is part of the answer.
        (("a", "a\ufffd"), ("a", "\ufffd")),
        # The server cuts a stop string only when it is complete, so the text can get shorter.
        (("ab", "a"), ("ab", "")),
    ],
)
def test_pieces_of_whole_texts_have_only_new_text(
    texts: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    new = NewText()
    whole = [Piece(text) for text in texts]
    whole[-1].reason = "stop"
    read = [new_part(piece, new) for piece in whole]
    assert tuple(piece.text for piece in read) == expected


async def test_stream_of_whole_texts_ends_at_stop_strings_in_the_endpoint() -> None:
    inputs = ("text_input", "streaming", "sampling_param_max_tokens", "sampling_param_stop")
    script = Script(inputs=inputs)
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), TARGET, kind("llm_api").requests) as triton:
            served = await triton.served()
            assert await triton.prompt_tokens("p") is None
            for stream in (True, False):
                request = Request("p", TARGET, stop_words=("x",), stream=stream)
                assert [piece async for piece in triton.pieces(request, served)]
    finally:
        server.stop(None)
    names = [{tensor.name for tensor in message.inputs} for message in script.seen]
    assert ["sampling_param_stop" in each for each in names] == [False, True]
