"""The environment of a fetch Job selects trusted authorities and the upstream proxy."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore import exceptions
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from specdec.api.networks import Networks
from specdec.jobs import http_source, s3
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.egress_proxy import EgressProxy
from specdec.jobs.http_source import HttpSource
from specdec.jobs.proxy_protocol import UpstreamProxies
from specdec.jobs.result import JobError
from specdec.jobs.source_request import SourceRequest

LOOPBACK = Networks.parse(["127.0.0.1"])


class Handler(BaseHTTPRequestHandler):
    """Answers with the request target; a request through a proxy has a complete URL as target."""

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        # Object stores send the modification time and the version of a file.
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.02,))
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@dataclass(frozen=True)
class Authority:
    """The certificate of an authority, and a server's certificate with its key."""

    file: str
    server: str
    key: str


def openssl(*argv: str) -> None:
    subprocess.run(["openssl", *argv], check=True, capture_output=True, timeout=DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("authority")
    created = Authority(*(str(folder / name) for name in ("ca.pem", "server.pem", "server.key")))
    fresh = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    key, request, extensions = (
        str(folder / name) for name in ("ca.key", "server.csr", "extensions")
    )
    Path(extensions).write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    days = ("-days", "1")
    openssl("req", "-x509", *fresh, "-keyout", key, "-out", created.file, *days, "-subj", "/CN=ca")
    openssl("req", *fresh, "-keyout", created.key, "-out", request, "-subj", "/CN=server")
    signed = ("-CA", created.file, "-CAkey", key, "-CAcreateserial", "-extfile", extensions)
    openssl("x509", "-req", "-in", request, *signed, "-out", created.server, *days)
    return created


@pytest.fixture
def encrypted(server: ThreadingHTTPServer, authority: Authority) -> str:
    """Make the server use TLS, and return its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server, authority.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return f"https://127.0.0.1:{server.server_port}"


def read_over_http(url: str) -> str:
    """Read a file as the Job reads from a registry or a catalogue."""
    with EgressProxy(LOOPBACK) as proxy, http_source.client(proxy.url) as client:
        return HttpSource(client, "the store", "").get(f"{url}/bucket/file").text


def read_from_bucket(url: str) -> str:
    """Read a file as the Job reads from a bucket."""
    with EgressProxy(LOOPBACK) as proxy:
        source = {"uri": "s3://bucket", "endpoint": url, "region": "any"}
        request = SourceRequest("target", ArtifactKind.CHECKPOINT, source, proxy)
        with s3.open_source(request) as bucket:
            return bytes(obstore.get(bucket.store, "file").bytes()).decode()


@pytest.mark.parametrize("read", [read_over_http, read_from_bucket])
def test_private_authority_of_the_environment_is_trusted(
    read: Callable[[str], str],
    encrypted: str,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises((JobError, exceptions.GenericError)):
        read(encrypted)
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    assert read(encrypted) == "/bucket/file"


def test_tls_works_through_the_proxy_of_the_environment(
    encrypted: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    with EgressProxy(LOOPBACK, UpstreamProxies({})) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//me:word@"))
        assert read_over_http(encrypted) == "/bucket/file"
    with EgressProxy(LOOPBACK) as inner, http_source.client(inner.url) as client:
        with pytest.raises(JobError) as caught:
            HttpSource(client, "the store", "").get(f"{encrypted}/bucket/file")
        root_cause = inner.root_cause(caught.value, "the store")
    assert "127.0.0.1 does not accept connections" in root_cause.message


def test_proxy_without_tunnels_is_reported_with_its_status(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_port}")
    with EgressProxy(LOOPBACK) as proxy, http_source.client(proxy.url) as client:
        with pytest.raises(JobError) as caught:
            HttpSource(client, "the store", "").get("https://store.invalid/bucket/file")
        root_cause = proxy.root_cause(caught.value, "the store")
    assert "the proxy 127.0.0.1 answered 501" in root_cause.message


@pytest.mark.parametrize("read", [read_over_http, read_from_bucket])
def test_requests_use_the_proxy_of_the_environment(
    read: Callable[[str], str], server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.server_port}")
    assert read("http://store.invalid") == "http://store.invalid/bucket/file"
