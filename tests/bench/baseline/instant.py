"""A server whose target, draft and text models answer at once.

`python -m bench.baseline.instant` prints its port and serves until its stdin ends. Both engines
continue a prompt with token 1 up to the requested length. Every draft token is therefore accepted,
and no answer ends before its limit.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

_INPUTS = (
    "QUERY",
    "TOKENS_BATCH",
    "input_ids",
    "input_lengths",
    "request_output_len",
    "draft_input_ids",
    "end_id",
    "pad_id",
    "min_length",
)
_END = 0
_EMPTY = np.zeros((1, 2, 0), np.int32)


class Instant(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The server. Engines are decoupled and text models are not, as the operator serves them."""

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        config.input.extend(model_config_pb2.ModelInput(name=name) for name in _INPUTS)
        config.model_transaction_policy.decoupled = request.name.startswith("tensorrt_llm")
        return service_pb2.ModelConfigResponse(config=config)

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.model_name == "postprocessing":
            return _response(OUTPUT=np.array([b"\x03\x00\x00\x00abc"]))
        return _response(
            INPUT_ID=np.array([[1, 1, 1, 1]], np.int32),
            REQUEST_INPUT_LEN=np.array([[4]], np.int32),
            STOP_WORDS_IDS=_EMPTY,
            BAD_WORDS_IDS=_EMPTY,
            EMBEDDING_BIAS=np.zeros((1, 0), np.float32),
            OUT_END_ID=np.array([[_END]], np.int32),
            OUT_PAD_ID=np.array([[_END]], np.int32),
        )

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        async for request in requests:
            raw = dict(
                zip(
                    (tensor.name for tensor in request.inputs),
                    request.raw_input_contents,
                    strict=True,
                )
            )
            new = int.from_bytes(raw["request_output_len"], "little")
            ids = np.ones((1, 1, len(raw["input_ids"]) // 4 + new), np.int32)
            answer = service_pb2.ModelStreamInferResponse()
            answer.infer_response.CopyFrom(
                _response(output_ids=ids, sequence_length=np.array([[ids.size]], np.int32))
            )
            # As in Triton's Python backend, the last response carries the flag.
            answer.infer_response.parameters["triton_final_response"].bool_param = True
            yield answer


def _response(**arrays: Any) -> Any:
    response = service_pb2.ModelInferResponse()
    for name, array in arrays.items():
        dtype = np_to_triton_dtype(array.dtype)
        response.outputs.add(name=name, datatype=dtype, shape=array.shape)
        response.raw_output_contents.append(array.tobytes())
    return response


async def serve() -> None:
    """Serve until stdin ends, so that no server outlives its bench."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Instant(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.collect()
    gc.freeze()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(serve())
