"""A simulated BLS with known acceptance and step times, which counts its steps."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from cluster.processes import DEADLINE_SECONDS

TYPES = {
    "max_tokens": np.int32,
    "num_draft_tokens": np.int32,
    "end_id": np.int32,
    "random_seed": np.uint64,
    "stream": np.bool_,
    "exclude_input_in_output": np.bool_,
    "return_perf_metrics": np.bool_,
    "return_num_input_tokens": np.bool_,
    "return_num_output_tokens": np.bool_,
}
OUTPUTS = (
    "text_output",
    "total_draft_tokens",
    "total_accepted_draft_tokens",
    "num_output_tokens",
)


@dataclass
class Simulated(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A BLS whose draft agrees with its target at random.

    Attributes:
        acceptance: chance that the draft agrees with the target at a token.
        target_seconds, draft_seconds: seconds of a step.
        sleep: waits for these seconds.
        draft_tokens: draft length of requests without `num_draft_tokens`.
        refuse: number of requests that the server accepts; it refuses all later ones.
        stops_at: number of the request at which the server stops.
        seen: parameters of the requests, in order.
        counted: rounds, drafted, accepted and generated tokens of every draft length.
    """

    acceptance: float = 0.8
    target_seconds: float = 0.0
    draft_seconds: float = 0.0
    sleep: Callable[[float], object] = time.sleep
    draft_tokens: int = 4
    decoupled: bool = True
    refuse: int | None = None
    stops_at: int | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    counted: dict[int, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._reached: dict[int, threading.Event] = {}
        self.stop: Callable[[], object] = lambda: None

    def reached(self, count: int) -> threading.Event:
        """Return an event that is set once this many requests have arrived."""
        with self._lock:
            event = self._reached.setdefault(count, threading.Event())
            if len(self.seen) >= count:
                event.set()
        return event

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name == "absent":
            context.abort(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'absent'")
        config = model_config_pb2.ModelConfig(name=request.name)
        names = ["text_input", *TYPES]
        if request.name == "ensemble":
            names.remove("num_draft_tokens")
        config.input.extend(model_config_pb2.ModelInput(name=n) for n in names)
        config.output.extend(model_config_pb2.ModelOutput(name=n) for n in OUTPUTS)
        config.model_transaction_policy.decoupled = self.decoupled
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        given = self._given(request)
        if given is None:
            return context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no more of these")
        rounds = list(self.rounds(given))
        tokens = sum(new for new, _, _ in rounds)
        return _response("x" * tokens, *rounds[-1][1:], tokens)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        for request in requests:
            given = self._given(request)
            if given is None:
                yield service_pb2.ModelStreamInferResponse(error_message="no more of these")
                continue
            for part in self.parts(given):
                yield service_pb2.ModelStreamInferResponse(infer_response=part)
            final = service_pb2.ModelStreamInferResponse()
            final.infer_response.parameters["triton_final_response"].bool_param = True
            yield final

    def parts(self, given: dict[str, Any]) -> Iterator[Any]:
        """Yield the messages of an answer, each after the time of its steps."""
        for new, drafted, accepted in self.rounds(given):
            yield _response("x" * new, drafted, accepted, new)

    def _given(self, request: Any) -> dict[str, Any] | None:
        """Record and return a request's values; None if the server refuses the request."""
        given: dict[str, Any] = {}
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            kind = TYPES.get(tensor.name)
            given[tensor.name] = raw[4:] if kind is None else np.frombuffer(raw, kind).item()
        return self.admitted(given)

    def admitted(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """Record a request's values and return them; None if the server refuses the request."""
        with self._lock:
            self.seen.append(given)
            count = len(self.seen)
            if count in self._reached:
                self._reached[count].set()
        if count == self.stops_at:
            self.stop()
        refused = self.refuse is not None and count > self.refuse
        return None if refused else given

    def rounds(self, given: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
        """Yield each round's new tokens, and the drafted and accepted tokens so far."""
        length = given.get("num_draft_tokens", self.draft_tokens)
        chance = random.Random(given["random_seed"])
        left, drafted, accepted = given["max_tokens"], 0, 0
        while left:
            offered = min(length, left - 1)
            self.sleep(self.target_seconds + offered * self.draft_seconds)
            agreed = 0
            while agreed < offered and chance.random() < self.acceptance:
                agreed += 1
            drafted, accepted, left = drafted + offered, accepted + agreed, left - agreed - 1
            with self._lock:
                counted = self.counted.setdefault(length, Counter())
                counted.update(rounds=1, drafted=offered, accepted=agreed, tokens=agreed + 1)
            yield agreed + 1, drafted, accepted


def _response(text: str, drafted: int, accepted: int, tokens: int) -> Any:
    response = service_pb2.ModelInferResponse()
    packed = len(text).to_bytes(4, "little") + text.encode()
    for name, dtype, raw in (
        ("text_output", "BYTES", packed),
        ("total_draft_tokens", "INT32", np.int32(drafted).tobytes()),
        ("total_accepted_draft_tokens", "INT32", np.int32(accepted).tobytes()),
        ("num_output_tokens", "INT32", np.int32(tokens).tobytes()),
    ):
        response.outputs.add(name=name, datatype=dtype, shape=[1])
        response.raw_output_contents.append(raw)
    return response


@contextmanager
def served(simulated: Simulated) -> Iterator[str]:
    """Yield the address of the simulated BLS while it is served."""
    server = grpc.server(ThreadPoolExecutor(max_workers=70))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(simulated, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    simulated.stop = lambda: server.stop(grace=None)
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait(DEADLINE_SECONDS)
