"""Whether a server answers gRPC streams, for the readiness and the liveness probe.

A cancelled stream can block all streams of Triton 2.51, while its HTTP endpoint and its engines go
on. So the probes open a stream and request a model that does not exist. Triton answers with an
error at once, and no model works for that.

The probes run without site-packages, where Python starts fastest, and so without a library for
gRPC. One call needs four frames of HTTP/2 (RFC 9113), whose headers are sent uncompressed (RFC
7541, 6.2.2).
"""

import socket
import ssl
import struct
import time
from collections.abc import Iterator

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _RESET, _PING, _GOAWAY = 0, 1, 4, 3, 6, 7
# END_STREAM and END_HEADERS, and ACK of a setting or a ping.
_LAST, _WHOLE, _ACK = 1, 4, 1
# Length and type, flags, number of the stream.
_HEAD = struct.Struct(">IBI")
_STREAM = 1
_FIELDS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/inference.GRPCInferenceService/ModelStreamInfer"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)
# A ModelInferRequest whose field 1, the name of the model, is no model of the operator.
_NAME = b"specdec-stream-probe"
_REQUEST = b"\x0a" + bytes([len(_NAME)]) + _NAME


def problem(port: int, seconds: float, *, encrypted: bool = False) -> str:
    """Why a stream got no response, or the empty string.

    Args:
        port: of gRPC.
        seconds: the most that the whole check takes.
        encrypted: whether the port speaks TLS. The check does not verify the certificate: it sends
            nothing secret, to its own container.
    """
    deadline = time.monotonic() + seconds
    try:
        with _connect(port, seconds, encrypted=encrypted) as connection:
            connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _call())
            for kind, flags, stream in _frames(connection, deadline):
                # Headers come with the first response, or alone with the end of the stream.
                if stream == _STREAM and (kind == _DATA or (kind == _HEADERS and flags & _LAST)):
                    return ""
                if kind == _GOAWAY or (stream == _STREAM and kind == _RESET):
                    return f"the gRPC port {port} refused a stream"
    except TimeoutError:
        return f"a gRPC stream got no response within {seconds:.0f} s"
    except OSError as error:
        return f"the gRPC port {port} did not answer ({type(error).__name__})"
    return f"the gRPC port {port} ended a connection without a response"


def _connect(port: int, seconds: float, *, encrypted: bool) -> socket.socket:
    # Not a name, which would need a look-up.
    plain = socket.create_connection(("127.0.0.1", port), seconds)
    if not encrypted:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


def _call() -> bytes:
    headers = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in _FIELDS
    )
    message = b"\0" + len(_REQUEST).to_bytes(4, "big") + _REQUEST
    return _frame(_HEADERS, _WHOLE, _STREAM, headers) + _frame(_DATA, _LAST, _STREAM, message)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) << 8 | kind, flags, stream) + body


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, int]]:
    """Kind, flags and stream of each frame; settings and pings are acknowledged."""
    while head := _read(connection, _HEAD.size, deadline):
        length_and_kind, flags, stream = _HEAD.unpack(head)
        kind, body = length_and_kind & 0xFF, _read(connection, length_and_kind >> 8, deadline)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, body if kind == _PING else b""))
        yield kind, flags, stream & 0x7FFFFFFF


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes; fewer where the server has closed the connection."""
    data = b""
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data
