"""Endpoint picker of the Gateway API Inference Extension, and replicas whose load a test sets."""

import contextlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from prometheus_client import generate_latest
from typing_extensions import override

from cluster import binaries
from cluster.handle import Cluster
from cluster.processes import DEADLINE_SECONDS
from cluster.progress import report
from controlplane.operating import until
from specdec.images.openai.metrics import Metrics
from specdec.servers.totals import Load
from support.ports import reserved

MODULE = "sigs.k8s.io/gateway-api-inference-extension"
_PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_PICKED = re.compile(rb"x-gateway-destination-endpoint[^\w]+([\d.]+:\d+)")
# Field numbers of the protocol's messages, named as in their published definitions.
_REQUEST_HEADERS, _REQUEST_BODY = 2, 4
_HEADERS, _HEADER, _KEY, _RAW_VALUE = 1, 1, 1, 3
_BODY, _END_OF_STREAM = 1, 2


class Replica:
    """An endpoint that only serves /metrics, on its own loopback address."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self._metrics = Metrics()
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = replica.page() if self.path == "/metrics" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((address, port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def page(self) -> bytes:
        return generate_latest(self._metrics.registry)

    def set_load(self, waiting: int, running: int, kv_cache: float | None = None) -> None:
        self._metrics.set_load(Load(waiting, running, kv_cache), "model")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Picker:
    """A client of a running picker."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def pick(self) -> str:
        """Ask which pod should serve a request, as a gateway does; return its `address:port`.

        Raises:
            grpc.RpcError: the call of the picker fails.
            LookupError: the picker answers without a pod.
        """
        body = json.dumps({"model": "model", "prompt": "def f", "max_tokens": 4}).encode()
        header = [
            _field(_HEADER, _field(_KEY, name) + _field(_RAW_VALUE, value))
            for name, value in (
                (b":method", b"POST"),
                (b":path", b"/v1/completions"),
                (b"content-type", b"application/json"),
                (b"x-request-id", b"1"),
            )
        ]
        messages = (
            _field(_REQUEST_HEADERS, _field(_HEADERS, b"".join(header))),
            _field(_REQUEST_BODY, _field(_BODY, body) + bytes([_END_OF_STREAM << 3, 1])),
        )
        call = self._channel.stream_stream(_PROCESS)
        for reply in call(iter(messages), timeout=DEADLINE_SECONDS):
            if picked := _PICKED.search(reply):
                return picked[1].decode()
        raise LookupError("the picker named no endpoint")

    def close(self) -> None:
        self._channel.close()


def _field(number: int, value: bytes) -> bytes:
    """Encode bytes or a message as a field in the wire format of protocol buffers."""
    size, digits = len(value), bytearray()
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + value


def pool_definitions() -> list[Path]:
    """Return the CRD files of the kinds that the picker reads, of the pinned version."""
    folder = binaries.source("gateway", MODULE) / "config" / "crd" / "bases"
    return sorted(folder.iterdir())


@contextlib.contextmanager
def running(
    plane: Cluster, pool: str, config: Path, log: Path, namespace: str = "default"
) -> Iterator[Picker]:
    """Start the picker for a pool of the namespace; yield its client once it picks a pod."""
    binaries.ensure(["epp"], report)
    with reserved(2) as (port, health):
        argv = [str(binaries.path("epp")), f"--pool-name={pool}", f"--pool-namespace={namespace}"]
        argv += [f"--grpc-port={port}", f"--grpc-health-port={health}", "--metrics-port=0"]
        argv += [f"--config-file={config}", "--secure-serving=false", "--tracing=false"]
        argv += ["--metrics-endpoint-auth=false", "--enable-pprof=false"]
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        with log.open("wb") as output:
            process = subprocess.Popen(argv, env=environment, stdout=output, stderr=output)
        picker = Picker(port)
        try:
            until(lambda: _answers(process, picker), lambda: log.read_text()[-2000:])
            yield picker
        finally:
            picker.close()
            process.terminate()
            process.wait(timeout=DEADLINE_SECONDS)


def _answers(process: subprocess.Popen[bytes], picker: Picker) -> bool:
    assert process.poll() is None, "the picker has ended"
    try:
        return bool(picker.pick())
    except (grpc.RpcError, LookupError):
        return False
