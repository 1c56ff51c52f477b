"""The gRPC channel with a server that breaks the protocol, refuses, or fails in a stream."""

from __future__ import annotations

import asyncio

import h2.config
import h2.connection
import h2.events
import pytest
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from specdec.images.openai.h2_stream import INTERNAL, UNAVAILABLE, WINDOW, StreamError
from unit.openai.raw_server import OK, TRAILERS, data, message, raw_server

_FRAME_BYTES = 1 << 14


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\x40\x01\0\0\0\0\0\x01" + bytes(0x4001),
        b"\0\0\x01\0\0\0\0\0\0x",
        b"\0\0\x01\0\0\0\0\0\x63x",
        b"\0\0\x02\0\x08\0\0\0\x01\x05x",
        b"\0\0\x03\x01\x04\0\0\0\x01\xff\xff\xff",
        b"\0\0\x03\x07\0\0\0\0\0abc",
        b"\0\0\x01\x04\0\0\0\0\0x",
    ],
    ids=["too-long", "stream-0", "no-such-stream", "padding", "headers", "goaway", "settings"],
)
async def test_malformed_frame_ends_the_connection_and_not_the_channel(frame: bytes) -> None:
    async with raw_server() as server:
        peer, (stream,) = await server.open()
        peer.send(data(1, message(b"first")))
        peer.writer.write(frame)
        assert await stream.read() == b"first"
        with pytest.raises(StreamError) as caught:
            await stream.read()
        assert caught.value.code == UNAVAILABLE
        peer, (stream,) = await server.open()
        peer.send(data(1, message(b"second")))
        assert await stream.read() == b"second"


async def test_a_piece_is_read_before_the_frames_that_arrive_with_it_are_handled() -> None:
    async with raw_server() as server:
        peer, (first, second) = await server.open(2)
        # The broken frame precedes the piece and ends the connection when the channel handles it.
        broken = HeadersFrame(1, b"\xff\xff\xff", flags=["END_HEADERS"])
        peer.send(broken, data(3, message(b"piece")))
        assert await second.read() == b"piece"
        for stream in (first, second):
            with pytest.raises(StreamError) as caught:
                await stream.read()
            assert caught.value.code == UNAVAILABLE


@pytest.mark.parametrize("prefix", [b"\x01\0\0\0\x05", b"\0\xff\xff\xff\xff"])
async def test_malformed_message_ends_its_stream_alone(prefix: bytes) -> None:
    async with raw_server() as server:
        peer, (broken, other) = await server.open(2)
        peer.send(data(1, message(b"a") + prefix + b"hello"), data(3, message(b"b")))
        assert await broken.read() == b"a"
        with pytest.raises(StreamError, match="compressed or too large") as caught:
            await broken.read()
        assert caught.value.code == INTERNAL
        await peer.receive(RstStreamFrame, 1)
        assert await other.read() == b"b"


async def test_frames_and_messages_may_be_cut_anywhere() -> None:
    async with raw_server() as server:
        peer, (stream,) = await server.open()
        whole = message(b"one") + message(b"") + message(b"three")
        frames = [data(1, whole[:2]), data(1, b""), DataFrame(1, whole[2:9], pad_length=3)]
        frames[2].flags.add("PADDED")
        frames += [data(1, whole[9:], "END_STREAM")]
        for byte in b"".join(frame.serialize() for frame in frames):
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
        assert [await stream.read() for _ in range(4)] == [b"one", b"", b"three", None]


async def test_goaway_ends_the_streams_that_the_server_did_not_accept() -> None:
    async with raw_server() as server:
        peer, (accepted, dropped) = await server.open(2)
        peer.send(GoAwayFrame(0, last_stream_id=1))
        with pytest.raises(StreamError, match="before the request") as caught:
            await dropped.read()
        assert caught.value.code == UNAVAILABLE
        # A new request uses a new connection, and the accepted stream continues.
        _, (other,) = await server.open()
        other.cancel()
        peer.send(data(1, message(b"late")), peer.headers(1, TRAILERS, "END_STREAM"))
        assert await accepted.read() == b"late"
        assert await accepted.read() is None


async def test_reset_ends_one_stream_after_what_it_received() -> None:
    async with raw_server() as server:
        peer, (reset, other) = await server.open(2)
        peer.send(data(1, message(b"a")), RstStreamFrame(1, error_code=2))
        peer.send(data(3, message(b"b")))
        assert await reset.read() == b"a"
        with pytest.raises(StreamError, match="reset") as caught:
            await reset.read()
        assert caught.value.code == UNAVAILABLE
        assert await other.read() == b"b"


@pytest.mark.parametrize("rest", [b"", b"\0\0\x10\0\0\0\0\0\x01half"])
async def test_connection_that_breaks_ends_all_its_streams(rest: bytes) -> None:
    async with raw_server() as server:
        peer, streams = await server.open(2)
        peer.send(data(1, message(b"a")), data(3, message(b"b")))
        peer.writer.write(rest)
        peer.writer.close()
        assert [await stream.read() for stream in streams] == [b"a", b"b"]
        for stream in streams:
            with pytest.raises(StreamError, match="the connection ended") as caught:
                await stream.read()
            assert caught.value.code == UNAVAILABLE
        await server.open()


async def test_request_waits_for_the_window_of_the_server() -> None:
    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 8}
    async with raw_server(settings) as server:
        # The client knows the settings of the server after the first response.
        peer, _ = await server.open()
        opening = asyncio.ensure_future(server.channel.open("/a/b", b"x" * 15))
        request = b""
        while len(request) < 20:
            frame = await peer.receive(DataFrame, 3)
            assert isinstance(frame, DataFrame)
            assert len(frame.data) <= 8
            assert not opening.done() or len(request + frame.data) == 20
            request += frame.data
            peer.send(WindowUpdateFrame(3, window_increment=8))
        assert request == message(b"x" * 15)
        peer.send(peer.headers(3, OK), data(3, message(b"done")))
        assert await (await opening).read() == b"done"


async def test_request_that_waits_for_a_window_ends_with_a_reset() -> None:
    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 12}
    async with raw_server(settings) as server:
        peer, _ = await server.open()
        opening = asyncio.ensure_future(server.channel.open("/a/b", b"x" * 100))
        await peer.receive(DataFrame, 3)
        peer.send(RstStreamFrame(3, error_code=7))
        with pytest.raises(StreamError, match="reset"):
            await (await opening).read()


async def test_server_beyond_the_window_of_a_stream_is_cut_off() -> None:
    async with raw_server() as server:
        peer, (stream, other) = await server.open(2)
        for _ in range(WINDOW // _FRAME_BYTES):
            peer.send(data(1, message(bytes(_FRAME_BYTES - 5))))
        peer.send(data(1, message(b"")), data(3, message(b"b")))
        await peer.receive(RstStreamFrame, 1)
        assert await other.read() == b"b"
        for _ in range(WINDOW // _FRAME_BYTES):
            assert await stream.read() is not None
        with pytest.raises(StreamError, match="more than the window"):
            await stream.read()


async def test_late_data_of_a_cancelled_stream_returns_to_the_window_of_the_connection() -> None:
    async with raw_server() as server:
        peer, (stream, other) = await server.open(2)
        stream.cancel()
        await peer.receive(RstStreamFrame, 1)
        sent = 0
        while sent < 8 << 20:
            peer.send(data(1, bytes(_FRAME_BYTES)))
            await peer.writer.drain()
            sent += _FRAME_BYTES
        update = await peer.receive(WindowUpdateFrame, 0)
        assert isinstance(update, WindowUpdateFrame)
        assert update.window_increment == sent
        peer.send(data(3, message(b"b")))
        assert await other.read() == b"b"


async def test_response_that_is_no_grpc_is_an_error() -> None:
    async with raw_server() as server:
        stream = await server.channel.open("/a/b", b"request")
        peer = await server.peer()
        await peer.receive(HeadersFrame)
        peer.send(peer.headers(1, [(":status", "404")]), data(1, b"<html>", "END_STREAM"))
        with pytest.raises(StreamError) as caught:
            await stream.read()
        assert caught.value.code == UNAVAILABLE


def test_h2_needs_no_data_frames_for_the_state_of_a_stream() -> None:
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client.initiate_connection()
    client.send_headers(
        1, [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]
    )
    server.receive_data(client.data_to_send())
    server.send_headers(1, OK)
    client.receive_data(server.data_to_send())
    server.send_data(1, b"hidden from the client's h2")
    server.data_to_send()
    server.send_headers(1, TRAILERS, end_stream=True)
    kinds = [type(event) for event in client.receive_data(server.data_to_send())]
    assert kinds == [h2.events.TrailersReceived, h2.events.StreamEnded], (
        "h2 no longer accepts trailers of a stream whose DATA it did not see: let "
        "Connection.data_received of specdec.images.openai give all frames to h2, and see ADR 0138"
    )
