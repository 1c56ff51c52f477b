"""TLS connections of all three clients, with a trusted server certificate."""

import asyncio
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from cluster.processes import DEADLINE_SECONDS
from specdec.client import Client, Connection, Request, UnreachableError
from specdec.client.infer import Inference, infer
from specdec.client.load import Settings, measure
from unit.bench.simulated import Simulated
from unit.bench.simulated_http import served_http
from unit.client import fake_http, fake_server
from unit.client.fake_pair import Pair


@dataclass(frozen=True)
class Certificate:
    file: str
    key: str

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    created = Certificate(str(folder / "cert.pem"), str(folder / "key.pem"))
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", created.key, "-out", created.file, "-days", "1"]
    argv = ["openssl", "req", "-x509", *curve, *files, *names]
    subprocess.run(argv, check=True, capture_output=True, timeout=DEADLINE_SECONDS)
    return created


def serve(servicer: object, certificate: Certificate) -> tuple[grpc.Server, str]:
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    pair = (Path(certificate.key).read_bytes(), Path(certificate.file).read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    return server, f"127.0.0.1:{port}"


def test_http_client_trusts_the_given_authority_only(certificate: Certificate) -> None:
    with fake_http.served(fake_http.Script(), certificate.context()) as url:
        trusted = Connection(url, 10, tls=True, root_certificates=certificate.file)
        with Client(trusted, protocol="http") as client:
            assert client.ask(Request("x")).text == "ab"
        with (
            Client(Connection(url, 10, tls=True), protocol="http") as client,
            pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            client.ask(Request("x"))


def test_grpc_client_connects_with_tls_only(certificate: Certificate) -> None:
    server, url = serve(fake_server.FakeTriton(fake_server.Script()), certificate)
    trusted = Connection(url, 10, tls=True, root_certificates=certificate.file)
    with Client(trusted) as client:
        assert client.ask(Request("x")).text == "ab"
    with (
        Client(Connection(url, 10)) as client,
        pytest.raises(UnreachableError, match=r"closed the connection .* add --tls"),
    ):
        client.ask(Request("x"))
    server.stop(grace=None).wait(DEADLINE_SECONDS)


def test_coroutines_trust_the_given_authority_only(certificate: Certificate) -> None:
    server, url = serve(Pair(), certificate)
    request = Inference(ids=(97,), max_tokens=2)
    trusted = Connection(url, 10, tls=True, root_certificates=certificate.file)
    assert asyncio.run(infer(trusted, request)).tokens == [98, 99]
    with pytest.raises(UnreachableError, match=r"the TLS connection to .*CERTIFICATE"):
        asyncio.run(infer(Connection(url, 10, tls=True), request))
    server.stop(grace=None).wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("tls", [False, True])
def test_failed_connections_are_not_reported_as_tls_errors(tls: bool) -> None:
    refused = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
    for detail in (refused, "Socket closed", ""):
        message = Connection("h:1", tls=tls).unreachable_message(detail)
        assert message.startswith("connection to h:1 failed")


def test_benchmark_over_http_trusts_the_given_authority_only(certificate: Certificate) -> None:
    settings = Settings(requests=2, output_tokens=4, resamples=100)
    with served_http(Simulated(), certificate.context()) as server:
        trusted = Connection(server.url, 10, tls=True, root_certificates=certificate.file)
        report = asyncio.run(measure(trusted, settings))
        assert (report.ended, report.errors) == ("completed", 0)
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(measure(Connection(server.url, 10, tls=True), settings))
