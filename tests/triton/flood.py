"""Send thousands of requests to a server at once over a few connections, as proxies do."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from support.triton_client import request_inputs

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_CONNECTIONS = 8
ANSWERED = "answered"
# A request ends with an error or with a response that has this parameter. That response is empty
# for a decoupled model.
_FINAL = "triton_final_response"


def encoded(model: str, values: Mapping[str, Any]) -> bytes:
    """Return a serialized request, which can be sent any number of times."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for tensor in request_inputs(values):
        request.inputs.append(tensor._get_tensor())
        request.raw_input_contents.append(tensor._get_content())
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    data: bytes = request.SerializeToString()
    return data


def flood(
    url: str,
    request: bytes,
    count: int,
    seconds: float = 240.0,
    ended: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Send `count` copies of a request without waiting for answers, and count how they ended.

    Args:
        url: `host:port` of the gRPC endpoint.
        request: from `encoded`.
        count: number of requests on all connections.
        seconds: time limit of the wait for each connection.
        ended: called when a request ends, with `ANSWERED` or the message of an error.

    Returns:
        The number of requests by how they ended: `ANSWERED` or the message of an error.

    Raises:
        grpc.RpcError: a connection broke.
        TimeoutError: some requests of a connection did not end within `seconds`.
    """
    shares = [range(number, count, _CONNECTIONS) for number in range(_CONNECTIONS)]
    clients = [_Client(url, request, len(share), ended) for share in shares if share]
    for client in clients:
        client.thread.start()
    for client in clients:
        client.thread.join(seconds)
        if client.thread.is_alive():
            client.call.cancel()
            raise TimeoutError(f"{sum(client.ends.values())} of {client.count} requests ended")
        if client.error is not None:
            raise client.error
    return sum((client.ends for client in clients), Counter[str]())


class _Client:
    """A connection that sends a share of the requests."""

    def __init__(self, url: str, request: bytes, count: int, ended: Callable[[str], None]) -> None:
        self.count = count
        self._ended = ended
        self.ends: Counter[str] = Counter()
        self.error: grpc.RpcError | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._all_ended = threading.Event()
        # Channels with equal options share one connection.
        self._channel = grpc.insecure_channel(url, [("specdec.connection", uuid.uuid4().hex)])
        method = self._channel.stream_stream(
            _METHOD,
            request_serializer=None,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self._requests = [request] * count
        self._method = method
        self.call: Any = None

    def _run(self) -> None:
        try:
            self.call = self._method(self._sent(self._requests))
            for response in self.call:
                if response.error_message:
                    self._end(response.error_message)
                elif response.infer_response.parameters[_FINAL].bool_param:
                    self._end(ANSWERED)
                if sum(self.ends.values()) == self.count:
                    self._all_ended.set()
        except grpc.RpcError as error:
            self.error = error
        finally:
            self._all_ended.set()
            self._channel.close()

    def _end(self, end: str) -> None:
        self.ends[end] += 1
        self._ended(end)

    def _sent(self, requests: Sequence[bytes]) -> Iterator[bytes]:
        yield from requests
        # The end of this iterator would end the call.
        self._all_ended.wait()
