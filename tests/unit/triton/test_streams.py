"""The check that a server answers gRPC streams, with gRPC's own server and with others."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from cluster.processes import DEADLINE_SECONDS
from specdec.images.serving import streams
from support import certificates
from unit.client.fake_server import FakeTriton, Script

# A server that answers is given as long as it needs, one that does not only this time.
_UNANSWERED = 0.3


@contextmanager
def serving(script: Script, credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(FakeTriton(script), server)
    address = "127.0.0.1:0"
    yield_port = (
        server.add_secure_port(address, credentials)
        if credentials
        else server.add_insecure_port(address)
    )
    server.start()
    try:
        yield yield_port
    finally:
        server.stop(None).wait()


def test_error_about_the_model_is_a_response() -> None:
    script = Script(error="Request for unknown model: 'specdec-stream-probe' is not found")
    with serving(script) as port:
        assert streams.problem(port, DEADLINE_SECONDS) == ""
    (request,) = script.seen
    assert request.model_name == "specdec-stream-probe"


def test_encrypted_port_is_asked_over_tls(tmp_path: Path) -> None:
    made = certificates.make(tmp_path).server
    pair = (Path(made.key).read_bytes(), Path(made.certificate).read_bytes())
    credentials = grpc.ssl_server_credentials([pair])
    with serving(Script(error="unknown model"), credentials) as port:
        assert streams.problem(port, DEADLINE_SECONDS, encrypted=True) == ""


def test_stream_without_a_response_is_a_problem() -> None:
    script = Script(silent=True)
    with serving(script) as port:
        script.hold.clear()
        try:
            problem = streams.problem(port, _UNANSWERED)
        finally:
            script.hold.set()
    assert problem == "a gRPC stream got no response within 0 s"


def test_server_that_accepts_no_connection_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert streams.problem(port, _UNANSWERED).startswith("a gRPC stream got no response")
    problem = streams.problem(port, DEADLINE_SECONDS)
    assert problem == f"the gRPC port {port} did not answer (ConnectionRefusedError)"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", "ended a connection without a response"),
        (b"\0\0\0\4\0\0\0\0\0" + b"\0\0\10\7\0\0\0\0\0" + bytes(8), "refused a stream"),
        (b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1" + bytes(4), "refused a stream"),
    ],
)
def test_server_that_refuses_streams_is_a_problem(sent: bytes, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        done = pool.submit(answer)
        assert expected in streams.problem(server.getsockname()[1], DEADLINE_SECONDS)
        done.result()
