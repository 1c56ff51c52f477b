"""A streaming server in a process of its own that stamps every chunk with its clock.

`python -m bench.baseline.clock CHUNKS SECONDS` prints its port and serves until its stdin ends. A
chunk's text is the moment at which the request came and the one at which the chunk left, on the
clock that all processes of a Linux machine share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc


class Clock(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers every request with as many chunks, one every so many seconds."""

    def __init__(self, chunks: int, seconds: float) -> None:
        self._chunks = chunks
        self._seconds = seconds

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        config.model_transaction_policy.decoupled = True
        return service_pb2.ModelConfigResponse(config=config)

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


async def serve(chunks: int, seconds: float) -> None:
    """Until stdin ends, so that no server outlives its bench."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Clock(chunks, seconds), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
