"""A fake server whose target and draft have known output; each byte of a text is a token."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferResult, model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from cluster.processes import DEADLINE_SECONDS

END = 0
VOCABULARY = 256
INPUTS = (
    "input_ids",
    "input_lengths",
    "request_output_len",
    "draft_input_ids",
    "draft_logits",
    "end_id",
    "pad_id",
    "temperature",
    "random_seed",
    "min_length",
    "return_generation_logits",
    "exclude_input_in_output",
)
Next = Callable[[Sequence[int]], int]


def counting(ids: Sequence[int]) -> int:
    """A target model: return the next letter, or the end token after z."""
    return END if ids[-1] == ord("z") else ids[-1] + 1


def careless(ids: Sequence[int]) -> int:
    """A draft model for `counting`: return a wrong token at every third position."""
    return ord("?") if len(ids) % 3 == 0 else counting(ids)


@dataclass
class Pair(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Models `tensorrt_llm` (decoupled) and `tensorrt_llm_draft`, with text models around them.

    Attributes:
        max_seq_len: the limit in the configuration of `preprocessing`; empty for none.
        room: max_seq_len and max_draft_len of the target's engine, which shortens answers as the
            executor does; with None, the target does not shorten answers.
    """

    target: Next = counting
    draft: Next = careless
    shift: int = 0
    refuse: str = ""
    hide_input: bool = False
    logits: bool = True
    max_seq_len: str = ""
    room: tuple[int, int] | None = None
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = model_config_pb2.ModelConfig(name=request.name)
        config.input.extend(model_config_pb2.ModelInput(name=n) for n in INPUTS)
        if request.name == "preprocessing" and self.max_seq_len:
            config.parameters["max_seq_len"].string_value = self.max_seq_len
        config.model_transaction_policy.decoupled = request.name == "tensorrt_llm"
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.refuse:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse)
        return self._answer(request)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        for request in requests:
            answer = service_pb2.ModelStreamInferResponse(infer_response=self._answer(request))
            yield answer
            final = service_pb2.ModelStreamInferResponse()
            final.infer_response.parameters["triton_final_response"].bool_param = True
            yield final

    def _answer(self, request: Any) -> Any:
        given = arrays(request)
        self.seen.append((request.model_name, given))
        if request.model_name == "preprocessing":
            ids = [[byte + self.shift for byte in given["QUERY"].item()]]
            return response(
                INPUT_ID=np.array(ids, np.int32),
                REQUEST_INPUT_LEN=np.array([[len(ids[0])]], np.int32),
                STOP_WORDS_IDS=np.zeros((1, 2, 0), np.int32),
                BAD_WORDS_IDS=np.zeros((1, 2, 0), np.int32),
                EMBEDDING_BIAS=np.zeros((1, 0), np.float32),
                OUT_END_ID=np.array([[END]], np.int32),
                OUT_PAD_ID=np.array([[END]], np.int32),
            )
        if request.model_name == "postprocessing":
            text = bytes(int(token) for token in given["TOKENS_BATCH"].reshape(-1) if token)
            return response(OUTPUT=np.array([text], object))
        return self._engine(
            given,
            *(
                (self.target, self.room)
                if request.model_name == "tensorrt_llm"
                else (self.draft, None)
            ),
        )

    def _engine(self, given: dict[str, Any], following: Next, room: tuple[int, int] | None) -> Any:
        prompt = [int(token) for token in given["input_ids"].reshape(-1)]
        proposal = [int(token) for token in given.get("draft_input_ids", np.array([])).reshape(-1)]
        new: list[int] = []
        count = int(given["request_output_len"].item())
        if room is not None:
            count = min(count, room[0] - len(prompt) - (len(proposal) or room[1]))
        for position in range(count):
            new.append(following([*prompt, *new]))
            if new[-1] == END or (position < len(proposal) and proposal[position] != new[-1]):
                break
        ids = new if self.hide_input else [*prompt, *new]
        outputs: dict[str, Any] = {
            "output_ids": np.array([[ids]], np.int32),
            "sequence_length": np.array([[len(ids)]], np.int32),
        }
        if "return_generation_logits" in given and self.logits:
            outputs["generation_logits"] = np.eye(VOCABULARY, dtype=np.float32)[new][None, None]
        return response(**outputs)


def arrays(request: Any) -> dict[str, Any]:
    echoed = service_pb2.ModelInferResponse(raw_output_contents=request.raw_input_contents)
    for tensor in request.inputs:
        echoed.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    result = InferResult(echoed)
    return {tensor.name: result.as_numpy(tensor.name) for tensor in request.inputs}


def response(**arrays: Any) -> Any:
    response = service_pb2.ModelInferResponse()
    for name, array in arrays.items():
        response.outputs.add(
            name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape
        )
        raw = array.tobytes()
        if array.dtype == np.object_:
            raw = b"".join(len(item).to_bytes(4, "little") + item for item in array.reshape(-1))
        response.raw_output_contents.append(raw)
    return response


@contextmanager
def served(pair: Pair) -> Iterator[str]:
    """Serve the pair and yield its address."""
    server = grpc.server(ThreadPoolExecutor(max_workers=40))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(pair, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait(DEADLINE_SECONDS)
