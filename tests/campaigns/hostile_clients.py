"""Kinds of hostile clients of an OpenAI API: bodies, trailers and connections."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

_MILLION = 1_000_000
_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"
# The most that a client reads of an answer, and how long a hostile one waits for it.
_READ_BYTES = 64 << 10
_WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class Client:
    """What a client writes, and whether it then reads an answer.

    Attributes:
        parts: the bytes, in order.
        reads: it waits for an answer; otherwise it stays for the same time without reading.
        seconds: how long it stays.
    """

    parts: Sequence[bytes]
    reads: bool = True
    seconds: float = _WAIT_SECONDS

    async def run(self, port: int) -> str:
        """Return the first line of the answer, or how the connection ended."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_READ_BYTES)
        except OSError as error:
            return type(error).__name__
        try:
            async with asyncio.timeout(self.seconds):
                for part in self.parts:
                    writer.write(part)
                    await writer.drain()
                if not self.reads:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    await asyncio.Event().wait()
                return (await reader.read(_READ_BYTES)).split(b"\r\n")[0].decode(errors="replace")
        except TimeoutError:
            return "waits"
        except OSError as error:
            return type(error).__name__
        finally:
            with suppress(OSError):
                writer.transport.abort()


def post(path: str, body: bytes, length: int | None = None, headers: str = "") -> list[bytes]:
    """Return a request with a body; `length` replaces the body's own."""
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: h\r\n{headers}content-length: {size}\r\n\r\n"
    return [head.encode(), body]


def _chunked(path: str, *parts: bytes) -> list[bytes]:
    head = f"POST {path} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head.encode(), *parts]


def _filled(name: str, before: bytes, item: bytes, after: bytes, size: int) -> list[bytes]:
    head = b'{"model":"' + name.encode() + b'","messages":'
    return post(_CHAT, head + before + item * (size // len(item)) + after)


def _chat(name: str, **fields: object) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": name, "messages": messages, **fields}).encode()


def _text(name: str, **fields: object) -> bytes:
    return json.dumps({"model": name, "prompt": "hi", **fields}).encode()


_USER = b'{"role":"user","content":"a"}'
# By name, a client of a server whose model has the given name; `size` is between 1 and 4 million.
_Made = Callable[[str, int], Client]
BODIES: dict[str, _Made] = {
    "numbers as messages": lambda n, s: Client(_filled(n, b"[", b"1,", b"1]}", s)),
    "messages": lambda n, s: Client(_filled(n, b"[", _USER + b",", _USER + b"]}", s)),
    "two thousand messages": lambda n, s: Client(
        _filled(n, b"[", _USER + b",", _USER + b"]}", 2000 * len(_USER))
    ),
    "parts": lambda n, s: Client(_filled(n, b'[{"role":"user","content":[', b"{},", b"{}]}]}", s)),
    "stop": lambda n, s: Client(_filled(n, b'[],"stop":[', b'"",', b'""]}', s)),
    "tools": lambda n, s: Client(_filled(n, b'[],"tools":[', b"{},", b"{}]}", s)),
    "keys": lambda n, s: Client(_filled(n, b'[],"user":{', b'"a":1,', b'"b":1}}', s)),
    "biases": lambda n, s: Client(_filled(n, b'[],"logit_bias":{', b'"1":1,', b'"2":1}}', s)),
    "nested": lambda n, s: Client(_filled(n, b"", b"[", b"", s)),
    "commas in a text": lambda n, s: Client(
        _filled(n, b'[{"role":"user","content":"', b"[,{", b'"}]}', s)
    ),
    "escapes": lambda n, s: Client(
        _filled(n, b'[{"role":"user","content":"', b"\\ud83d\\ude00", b'"}]}', s)
    ),
    "a text without end": lambda n, s: Client(_filled(n, b'["', b'\\"', b"", s)),
    "no UTF-8": lambda n, s: Client(_filled(n, b'["', b"\xff", b'"]}', s)),
    "a number without limit": lambda n, s: Client(
        post(_TEXT, b'{"model":"' + n.encode() + b'","prompt":"a","max_tokens":1e400}')
    ),
    "a long number": lambda n, s: Client(_filled(n, b"[", b"9", b"]}", s)),
    "several answers": lambda n, s: Client(post(_CHAT, _chat(n, n=1000, best_of=1000))),
    "prompts": lambda n, s: Client(post(_TEXT, _text(n, prompt=["a"] * 1000))),
    "beams": lambda n, s: Client(post(_CHAT, _chat(n, use_beam_search=True))),
    "a template": lambda n, s: Client(
        post(_CHAT, _chat(n, chat_template_kwargs={"chat_template": "{{ 1 }}", "messages": []}))
    ),
    "a grammar": lambda n, s: Client(
        post(_CHAT, _chat(n, response_format={"type": "regex", "regex": "(a*)*b"}))
    ),
    "a body above the limit": lambda n, s: Client(post(_TEXT, b" " * (5 * _MILLION))),
}
TRAILERS: dict[str, _Made] = {
    "a scope as a trailer": lambda n, s: Client(
        _chunked(_TEXT, b"1\r\n{\r\n0\r\nx-lookup-scope: other\r\n\r\n")
    ),
    "trailers": lambda n, s: Client(_chunked(_TEXT, b"0\r\n", b"a: b\r\n" * (s // 6))),
    "a long trailer": lambda n, s: Client(_chunked(_TEXT, b"0\r\na: ", *[b"b" * 65_536] * 32)),
    "a long name of a trailer": lambda n, s: Client(
        _chunked(_TEXT, b"0\r\n", *[b"b" * 65_536] * 32)
    ),
    "a long extension": lambda n, s: Client(_chunked(_TEXT, b"1;", *[b"e" * 65_536] * 32)),
    "small chunks": lambda n, s: Client(_chunked(_TEXT, b"1\r\n \r\n" * 100_000)),
    "two scopes": lambda n, s: Client(
        post(_TEXT, _text(n), headers="x-lookup-scope: a\r\nx-lookup-scope: b\r\n")
    ),
    "headers": lambda n, s: Client([b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 20_000]),
    "a long header": lambda n, s: Client([b"GET / HTTP/1.1\r\na: ", b"b" * 200_000]),
}
CONNECTIONS: dict[str, _Made] = {
    "a head that stalls": lambda n, s: Client([b"POST / HTTP/1.1\r\na: b"]),
    "a head of 30 KB that stalls": lambda n, s: Client([b"GET / HTTP/1.1\r\na: " + b"b" * 30_000]),
    "a body that stalls": lambda n, s: Client(post(_TEXT, b"{", 1000)),
    "a large body that stalls": lambda n, s: Client(post(_TEXT, b"{" + b" " * s, 4_194_304)),
    "a refused body that stalls": lambda n, s: Client(
        post(_TEXT, b"{" + b" " * s, 99_999_999), reads=False
    ),
    "requests without a wait": lambda n, s: Client([b"GET / HTTP/1.1\r\nhost: h\r\n\r\n" * 5000]),
    "a chat whose client leaves": lambda n, s: Client(
        _filled(n, b'[{"role":"user","content":"', b"ab", b'"}]}', s), reads=False
    ),
    "a stream that is not read": lambda n, s: Client(
        post(_TEXT, _text(n, prompt="endless", stream=True)), reads=False
    ),
    "another protocol": lambda n, s: Client([b"\x16\x03\x01\0\xff" * 1000]),
    "nothing": lambda n, s: Client([b""]),
}
KINDS = {**BODIES, **TRAILERS, **CONNECTIONS}


def drawn(random_numbers: random.Random, name: str) -> tuple[str, Client]:
    """Draw a kind, and a client of it.

    Args:
        random_numbers: the source of the draws.
        name: of the served model.
    """
    kind = random_numbers.choice(list(KINDS))
    return kind, KINDS[kind](name, random_numbers.randint(1, 4) * _MILLION)
