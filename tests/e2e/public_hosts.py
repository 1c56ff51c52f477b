"""Serves public hosts on this machine, so that a command with their names runs as printed.

A client with `HTTPS_PROXY` connects to the host through the proxy. The proxy presents a
certificate for that host, and forwards each request to a local server that uses HTTP without TLS.
"""

import http.client
import shutil
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from support import certificates

# Headers that apply to a single connection: the proxy does not forward them.
_OF_THE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding"})


@contextmanager
def serving(folder: Path, servers: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve each public host from its local server `host:port`; yield a client's variables.

    The certificates go into `folder`, which must be empty.
    """
    made = certificates.make(folder, hosts=tuple(servers))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.server.certificate, made.server.key)
    with _Proxy(tls, servers) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        port = proxy.server_address[1]
        yield {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "SSL_CERT_FILE": made.authority}
        proxy.shutdown()
        thread.join()


class _Proxy(ThreadingHTTPServer):
    # The end of the proxy waits for open connections. That is safe, because its clients end first.
    daemon_threads = False

    def __init__(self, tls: ssl.SSLContext, servers: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.tls, self.servers = tls, servers


class _Connection(BaseHTTPRequestHandler):
    """A connection: the client sends CONNECT, and then requests to the host of the CONNECT."""

    protocol_version = "HTTP/1.1"
    server: _Proxy
    timeout = 60
    _local = ""

    def do_CONNECT(self) -> None:
        """Accept CONNECT, and continue with TLS as the requested host."""
        self._local = self.server.servers.get(self.path.partition(":")[0], "")
        if not self._local:
            self.send_error(502, "No such host here")
            return
        self.send_response(200)
        self.end_headers()
        plain = self.connection
        self.connection = self.server.tls.wrap_socket(plain, server_side=True)
        # `finish` closes the TLS connection, and the server closes the accepted socket.
        self.request = self.connection
        self.setup()
        self.close_connection = False

    def do_GET(self) -> None:
        """Forward a request to the local server, and return its response to the client."""
        with closing(http.client.HTTPConnection(self._local, timeout=DEADLINE_SECONDS)) as local:
            headers = {"Accept": self.headers.get("Accept", "*/*")}
            local.request(self.command, self.path, headers=headers)
            answer = local.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_THE_CONNECTION:
                    self.send_header(name, value)
            # The client reads a body without a length until the connection ends.
            self.send_header("Connection", "close")
            self.end_headers()
            shutil.copyfileobj(answer, self.wfile)

    do_HEAD = do_GET  # noqa: N815

    @override
    def finish(self) -> None:
        super().finish()
        self.connection.close()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass
