"""Clients of an attacker: they send HTTP/2 frames and HTTP/1 bytes as given, without checks.

Client libraries refuse to send most of this, so tests with a library prove nothing about a server.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cluster.processes import DEADLINE_SECONDS

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 6, 7, 9
_END_STREAM, _ACK, _END_HEADERS, PRIORITY = 0x1, 0x1, 0x4, 0x20

# Whether both sides add a header to their tables (RFC 7541, 6.2).
INDEXED, PLAIN, NEVER = 0x40, 0x00, 0x10
# A reference to the newest entry of the table.
NEWEST = b"\xbe"

# Codes of RFC 7541, appendix B, for the characters that these tests send.
_CODES = {
    "\n": (0x3FFFFFFC, 30), " ": (0x14, 6), "-": (0x16, 6), ":": (0x5C, 7), "C": (0x5E, 7),
    "a": (0x3, 5), "c": (0x4, 5), "d": (0x24, 6), "e": (0x5, 5), "g": (0x26, 6), "i": (0x6, 5),
    "l": (0x28, 6), "n": (0x2A, 6), "o": (0x7, 5), "p": (0x2B, 6), "r": (0x2C, 6),
    "s": (0x8, 5), "t": (0x9, 5), "u": (0x2D, 6), "v": (0x77, 7),
}  # fmt: skip


@dataclass
class Reply:
    """The result of a call.

    Attributes:
        message: the answer; None if the server returned an error or closed the connection.
        end: how the call ended: `trailers`, `reset`, `goaway` or `closed`.
        headers: blocks of header frames, as received.
    """

    message: bytes | None = None
    end: str = "closed"
    headers: bytes = b""


def text(value: bytes, *, huffman: bool = False) -> bytes:
    """Return a string in the encoding of HPACK."""
    if not huffman:
        return _number(len(value), 7, 0) + value
    bits = "".join(f"{code:0{size}b}" for code, size in (_CODES[chr(c)] for c in value))
    bits += "1" * (-len(bits) % 8)
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return _number(len(packed), 7, 0x80) + packed


def header(name: bytes, value: bytes, kind: int = PLAIN, *, huffman: bool = False) -> bytes:
    """Return an HPACK header with a literal name."""
    return bytes([kind]) + text(name, huffman=huffman) + text(value, huffman=huffman)


def _number(value: int, bits: int, first: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


@dataclass(frozen=True)
class Call:
    """A call of a method of Triton's gRPC service.

    Attributes:
        method: name without the service's name.
        headers: HPACK fragments, sent unchanged after the headers that gRPC needs.
        message: a serialised request.
        pieces: sizes of the first header frames; the last frame has the rest of the headers.
        flags: additional flags of the first header frame.
        trailers: a header block that follows the message.
    """

    method: str
    headers: bytes = b""
    message: bytes = b""
    pieces: Sequence[int] = ()
    flags: int = 0
    trailers: bytes = b""

    def frames(self, stream: int) -> Iterator[bytes]:
        """Yield the frames of the call on a stream."""
        path = f"/inference.GRPCInferenceService/{self.method}".encode()
        block = b"\x83\x86\x04" + text(path) + b"\x01" + text(b"localhost")
        block += b"\x0f\x10" + text(b"application/grpc") + header(b"te", b"trailers")
        yield from self._split(stream, block + self.headers)
        body = struct.pack(">BI", 0, len(self.message)) + self.message
        yield _frame(_DATA, 0 if self.trailers else _END_STREAM, stream, body)
        if self.trailers:
            yield _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, self.trailers)

    def _split(self, stream: int, block: bytes) -> Iterator[bytes]:
        parts = []
        for size in self.pieces:
            parts.append(block[:size])
            block = block[size:]
        parts.append(block)
        if self.flags & PRIORITY:
            parts[0] = b"\0\0\0\0\x10" + parts[0]
        for at, part in enumerate(parts):
            kind, flags = (_CONTINUATION, 0) if at else (_HEADERS, self.flags)
            last = _END_HEADERS if at == len(parts) - 1 else 0
            yield _frame(kind, flags | last, stream, part)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@dataclass
class _Connection:
    port: int
    replies: dict[int, Reply] = field(default_factory=dict)

    def ask(self, calls: Iterable[Call]) -> list[Reply]:
        """Send calls in turn on one connection; `closed` marks the call at which it ended."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS) as link:
            try:
                link.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
                for at, call in enumerate(calls):
                    stream = 2 * at + 1
                    self.replies[stream] = Reply()
                    link.sendall(b"".join(call.frames(stream)))
                    self._read(link, stream)
            except (ConnectionError, EOFError):
                pass
        return list(self.replies.values())

    def _read(self, link: socket.socket, stream: int) -> None:
        reply = self.replies[stream]
        while reply.end == "closed":
            size, kind, flags, of = struct.unpack(">IBBI", b"\0" + _exactly(link, 9))
            payload = _exactly(link, size)
            if kind == _SETTINGS and not flags & _ACK:
                link.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                link.sendall(_frame(_PING, _ACK, 0, payload))
            elif kind == _GOAWAY:
                reply.end = "goaway"
            elif of == stream:
                _take(reply, kind, flags, payload)


def _take(reply: Reply, kind: int, flags: int, payload: bytes) -> None:
    if kind == _DATA:
        reply.message = (reply.message or b"") + payload
    elif kind == _HEADERS:
        reply.headers += payload
    if kind == _RESET:
        reply.end = "reset"
    elif kind in (_DATA, _HEADERS) and flags & _END_STREAM:
        reply.end = "trailers"


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def grpc(port: int, *calls: Call) -> list[Reply]:
    """Send calls one after another on one connection, and return the replies."""
    return _Connection(port).ask(calls)


def http(port: int, *parts: bytes) -> int | None:
    """Send bytes as given, and return the status of the answer; None without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as link:
        answer = b""
        try:
            for part in parts:
                link.sendall(part)
            while b"\r\n" not in answer and (more := link.recv(4096)):
                answer += more
        except ConnectionError:
            return None
    fields = answer.split(b" ", 2)
    return int(fields[1]) if len(fields) > 2 and fields[0].startswith(b"HTTP/1.") else None
