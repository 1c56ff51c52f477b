"""A streaming server in its own process that writes time stamps into every chunk.

`python -m bench.baseline.clock CHUNKS SECONDS` prints its gRPC and HTTP ports and serves until
its stdin ends. A chunk's text holds two times: when the request arrived, and when the chunk left.
The clock is the same in all processes of a Linux machine. Time that the server and the kernel
spend on a chunk after its stamp counts as the client's error.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from typing_extensions import override

_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_LENGTH = b"content-length: "
_INPUTS = ("text_input", "max_tokens", "stream", "exclude_input_in_output")


class Clock(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers every request with `chunks` chunks, one every `seconds` seconds."""

    def __init__(self, chunks: int, seconds: float) -> None:
        self._chunks = chunks
        self._seconds = seconds

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        config.input.extend(model_config_pb2.ModelInput(name=name) for name in _INPUTS)
        config.output.add(name="text_output")
        config.model_transaction_policy.decoupled = True
        return service_pb2.ModelConfigResponse(config=config)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=True)

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        async for _ in requests:
            received = time.perf_counter()
            for number in range(1, self._chunks + 1):
                await asyncio.sleep(received + number * self._seconds - time.perf_counter())
                yield _chunk(f"{received!r} {time.perf_counter()!r}")
            final = service_pb2.ModelStreamInferResponse()
            final.infer_response.parameters["triton_final_response"].bool_param = True
            yield final


def _chunk(text: str) -> Any:
    answer = service_pb2.ModelStreamInferResponse()
    answer.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
    packed = len(text).to_bytes(4, "little") + text.encode()
    answer.infer_response.raw_output_contents.append(packed)
    return answer


class Events(asyncio.Protocol):
    """The same server over HTTP: it answers each request with server-sent events."""

    def __init__(self, chunks: int, seconds: float) -> None:
        self._chunks = chunks
        self._seconds = seconds
        self._unread = b""
        self._loop = asyncio.get_running_loop()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._unread += data
        head, ended, body = self._unread.partition(b"\r\n\r\n")
        length = int(head.partition(_LENGTH)[2].split(b"\r\n")[0] or 0)
        if ended and len(body) >= length:
            self._unread = b""
            # The event loop uses the clock of `time.monotonic`.
            self._later(1, now, self._loop.time())

    def _later(self, number: int, received: float, begun: float) -> None:
        moment = begun + number * self._seconds
        self._loop.call_at(moment, self._send, number, received, begun)

    def _send(self, number: int, received: float, begun: float) -> None:
        if self._transport.is_closing():
            return
        text = f"{received!r} {time.perf_counter()!r}"
        event = b"data: %s\n\n" % json.dumps({"text_output": text}).encode()
        first = _HEAD if number == 1 else b""
        last = b"0\r\n\r\n" if number == self._chunks else b""
        self._transport.write(b"%s%x\r\n%s\r\n%s" % (first, len(event), event, last))
        if number < self._chunks:
            self._later(number + 1, received, begun)


async def serve(chunks: int, seconds: float) -> None:
    """Serve until stdin ends, so that no server outlives its bench."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Clock(chunks, seconds), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    loop = asyncio.get_running_loop()
    events = await loop.create_server(lambda: Events(chunks, seconds), "127.0.0.1", 0)
    # Exempt existing objects from garbage collection, which would delay chunks.
    gc.collect()
    gc.freeze()
    print(port, events.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    events.close()
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
