"""A scripted fake of Triton's gRPC endpoint, on loopback."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from cluster.processes import DEADLINE_SECONDS

INPUTS = (
    "text_input",
    "max_tokens",
    "stream",
    "exclude_input_in_output",
    "num_draft_tokens",
    "random_seed",
    "stop_words",
    "return_perf_metrics",
)
OUTPUTS = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens")


def _set() -> Event:
    event = Event()
    event.set()
    return event


@dataclass
class Script:
    """The responses of the server: chunks of text, the counts after each, or an error.

    A unary request sets `asked` and waits for `answers`. It then records in `awaited` whether the
    client still waits.

    A request with the input `stop` records the id of the request to stop in `stopped`. With
    `stops`, that request then ends after its next chunk, and sets `ended`. `cancelled` is set when
    the client cancels a stream. A silent server keeps a stream open while `hold` is not set.
    `peers` are the addresses from which streams came.
    """

    chunks: Iterable[str] = ("a", "b")
    counts: tuple[tuple[int, int], ...] = ()
    error: str = ""
    decoupled: bool = True
    inputs: tuple[str, ...] = INPUTS
    silent: bool = False
    seen: list[Any] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)
    asked: Event = field(default_factory=Event)
    answers: Event = field(default_factory=Event)
    awaited: list[bool] = field(default_factory=list)
    stops: bool = True
    stopped: set[str] = field(default_factory=set)
    ended: Event = field(default_factory=Event)
    cancelled: Event = field(default_factory=Event)
    hold: Event = field(default_factory=_set)


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, script: Script) -> None:
        self.script = script

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name == "absent":
            context.abort(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'absent'")
        config = model_config_pb2.ModelConfig(name=request.name)
        config.input.extend(model_config_pb2.ModelInput(name=n) for n in self.script.inputs)
        config.output.extend(model_config_pb2.ModelOutput(name=n) for n in OUTPUTS)
        config.model_transaction_policy.decoupled = self.script.decoupled
        if request.name == "ensemble":
            config.ensemble_scheduling.SetInParent()
        return service_pb2.ModelConfigResponse(config=config)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        ended = Event()
        self.script.peers.add(context.peer())
        context.add_callback(lambda: None if ended.is_set() else self.script.cancelled.set())
        for request in requests:
            self.script.seen.append(request)
            if self.script.silent:
                self.script.hold.wait(DEADLINE_SECONDS)
                continue
            yield from self._responses(request)
            ended.set()

    def _responses(self, request: Any) -> Iterator[Any]:
        script = self.script
        if any(tensor.name == "stop" for tensor in request.inputs):
            script.stopped.add(request.id)
        elif script.error:
            yield _error(script.error)
            return
        else:
            for index, text in enumerate(script.chunks):
                yield self._chunk(text, index)
                if script.stops and request.id in script.stopped:
                    yield _error("the request was cancelled")
                    script.ended.set()
                    return
        yield _final()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.script.asked.set()
        self.script.answers.wait(DEADLINE_SECONDS)
        self.script.awaited.append(context.is_active())
        response = service_pb2.ModelInferResponse()
        _add(response, "REQUEST_INPUT_LEN", "INT32", np.int32(7).tobytes())
        return response

    def _chunk(self, text: str, index: int) -> Any:
        answer = service_pb2.ModelStreamInferResponse()
        response = answer.infer_response
        _add(response, "text_output", "BYTES", _packed(text.encode()))
        if self.script.counts:
            drafted, accepted = self.script.counts[index]
            _add(response, "total_draft_tokens", "INT32", np.int32(drafted).tobytes())
            _add(response, "total_accepted_draft_tokens", "INT32", np.int32(accepted).tobytes())
        response.parameters["triton_final_response"].bool_param = False
        return answer


def _packed(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def _add(response: Any, name: str, dtype: str, raw: bytes) -> None:
    response.outputs.add(name=name, datatype=dtype, shape=[1])
    response.raw_output_contents.append(raw)


def _error(message: str) -> Any:
    return service_pb2.ModelStreamInferResponse(error_message=message)


def _final() -> Any:
    answer = service_pb2.ModelStreamInferResponse()
    answer.infer_response.parameters["triton_final_response"].bool_param = True
    return answer


def serve(script: Script, port: int = 0, **options: int) -> tuple[Any, str]:
    """Start a server; return it and its address.

    Args:
        script: its responses.
        port: 0 for any free one.
        options: of gRPC, without the prefix `grpc.`.
    """
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=named)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(FakeTriton(script), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, f"127.0.0.1:{port}"
