"""Attacks on closed endpoints, sent by raw clients that do not check what they send."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from tritonclient.grpc import service_pb2 as messages

from specdec.triton import launch
from specdec.triton.repository import RepositoryPlan
from support.triton_client import ask, text
from support.triton_server import Server
from triton import raw
from triton.conftest import Serve
from triton.raw import Call, Reply, header

# Over gRPC, Triton adds this prefix to the name of the required header.
_OVER_GRPC = "triton-grpc-protocol-"
_PATHS = (
    "POST /v2/repository/index",
    "POST /v2/repository/models/ensemble/load",
    "POST /v2/repository/models/ensemble/unload",
    "GET /v2/logging",
    "POST /v2/logging",
    "GET /v2/trace/setting",
    "GET /v2/models/ensemble/trace/setting",
    "GET /v2/systemsharedmemory/status",
    "POST /v2/systemsharedmemory/region/stolen/register",
    "POST /v2/systemsharedmemory/unregister",
    "GET /v2/cudasharedmemory/status",
    "POST /v2/cudasharedmemory/unregister",
)


def required_header() -> tuple[bytes, bytes]:
    """Return the name and the value of the header that the server's arguments require."""
    option = "--http-restricted-api="
    (argument,) = (a for a in launch.server_argv("/models") if a.startswith(option))
    name, _, value = argument.partition(":")[2].partition("=")
    return name.encode(), value.encode()


@pytest.fixture(scope="module")
def target(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server for this module only: a successful attack ends no other test's server."""
    with serve(draft_target_plan) as running:
        yield running


@pytest.fixture(autouse=True)
def good_request_is_answered_after(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "target" in request.fixturenames:
        server: Server = request.getfixturevalue("target")
        assert text(ask(server.url, "ensemble", text_input="def f(", max_tokens=4))


def calls(region: str) -> list[Call]:
    """Return a call of each closed method; `region` is a shared memory region of the server."""
    stolen = messages.SystemSharedMemoryRegisterRequest(name="stolen", key=region, byte_size=64)
    name = {"model_name": "ensemble"}
    return [
        Call("RepositoryIndex"),
        Call("RepositoryModelLoad", message=b"\x12\x08ensemble"),
        Call("RepositoryModelUnload", message=b"\x12\x08ensemble"),
        Call("SystemSharedMemoryStatus"),
        Call("SystemSharedMemoryRegister", message=stolen.SerializeToString()),
        Call("SystemSharedMemoryUnregister"),
        Call("CudaSharedMemoryStatus"),
        Call("CudaSharedMemoryRegister"),
        Call("CudaSharedMemoryUnregister"),
        Call("TraceSetting", message=messages.TraceSettingRequest(**name).SerializeToString()),
        Call("LogSettings"),
    ]


# Returns the calls of an attack, from the attacked call and the name and value of a header.
Attack = Callable[[Call, bytes, bytes], list[Call]]


def with_headers(call: Call, headers: bytes, pieces: tuple[int, ...] = (), flags: int = 0) -> Call:
    return Call(call.method, headers, call.message, pieces, flags)


# The required header, in every way in which HTTP/2 can carry it.
EXACT: dict[str, Attack] = {
    "written-out": lambda c, n, v: [with_headers(c, header(n, v))],
    "never-indexed": lambda c, n, v: [with_headers(c, header(n, v, raw.NEVER))],
    "indexed": lambda c, n, v: [with_headers(c, header(n, v, raw.INDEXED))],
    "huffman": lambda c, n, v: [with_headers(c, header(n, v, huffman=True))],
    "from-the-table": lambda c, n, v: [
        with_headers(c, header(n, v, raw.INDEXED)),
        with_headers(c, raw.NEWEST),
    ],
    "name-from-the-table": lambda c, n, v: [
        with_headers(c, header(n, b"other", raw.INDEXED)),
        # The name of the entry with the index 62, and another value.
        with_headers(c, b"\x0f\x2f" + raw.text(v)),
    ],
    "continued": lambda c, n, v: [with_headers(c, header(n, v), (40, *[1] * 150))],
    "with-priority": lambda c, n, v: [with_headers(c, header(n, v), flags=raw.PRIORITY)],
    "among-many": lambda c, n, v: [
        with_headers(c, header(b"x", b"y") * 40 + header(n, v) + header(b"z", b"y"))
    ],
}
# Headers that a careless server might mistake for the required header.
ALIKE: dict[str, Attack] = {
    "lower-case": lambda c, n, v: [with_headers(c, header(n.lower(), v))],
    "upper-case": lambda c, n, v: [with_headers(c, header(n.upper(), v))],
    "binary": lambda c, n, v: [with_headers(c, header(n + b"-bin", b"bm8KdmFsdWU"))],
    "no-blank": lambda c, n, v: [with_headers(c, header(n.replace(b" ", b""), v))],
    "no-colon": lambda c, n, v: [with_headers(c, header(n.replace(b":", b"").lower(), v))],
    "cut-at-the-colon": lambda c, n, v: [with_headers(c, header(n.lower().split(b":")[0], v))],
    "ends-early": lambda c, n, v: [with_headers(c, header(n + b"\0", v))],
    "escaped": lambda c, n, v: [
        with_headers(c, header(n.lower().replace(b":", b"%3a").replace(b" ", b"%20"), v))
    ],
    "prefix-alone": lambda c, n, v: [with_headers(c, header(_OVER_GRPC.encode(), v))],
    "as-a-pseudo-header": lambda c, n, v: [with_headers(c, header(b":" + n, v))],
    "twice": lambda c, n, v: [with_headers(c, header(n, b"other") + header(n, v))],
    "as-a-trailer": lambda c, n, v: [
        Call(c.method, message=c.message, trailers=header(n, v)),
    ],
}
VARIANTS = EXACT | ALIKE


def attack(server: Server, variant: str, call: Call) -> Reply:
    """Send an attack on a new connection, and return the last reply."""
    name, value = required_header()
    made = VARIANTS[variant](call, _OVER_GRPC.encode() + name, value)
    return raw.grpc(server.grpc_port, *made)[-1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_header_opens_a_closed_method(target: Server, variant: str) -> None:
    for call in calls(target.shared_memory()[0].name):
        reply = attack(target, variant, call)
        assert reply.message is None, f"{call.method} answered: {reply}"
    (alive,) = raw.grpc(target.grpc_port, Call("ServerLive"))
    assert alive.message is not None


def test_a_refused_call_leaves_its_connection_closed_to_the_next(target: Server) -> None:
    name, value = required_header()
    entered = header(_OVER_GRPC.encode() + name, value, raw.INDEXED)
    for second in (raw.NEWEST, b""):
        first, then = (Call("RepositoryIndex", headers) for headers in (entered, second))
        replies = raw.grpc(target.grpc_port, first, then, then)
        assert [reply.message for reply in replies] == [None] * 3


def test_these_clients_open_what_asks_for_a_line_break_in_a_value_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that attacks open a server that relies on a line break alone, as servers once did."""
    monkeypatch.setattr(launch, "_CLOSED", "closed=no\nvalue")
    with serve({}) as server:
        for variant in EXACT:
            reply = attack(server, variant, Call("RepositoryIndex"))
            assert reply.message is not None, f"{variant}: {reply}"


def request(path: str, line: bytes) -> bytes:
    length = b"Content-Length: 2\r\n" if path.startswith("POST") else b""
    body = b"{}" if length else b""
    head = path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    return head + line + length + b"\r\n" + body


def http_lines() -> Iterator[bytes]:
    """Yield HTTP/1.1 lines with the required header, or with headers that resemble it."""
    name, value = required_header()
    folded = name.replace(b":", b"\r\n :").replace(b" ", b"\r\n ")
    names = [name, name.lower(), name.upper(), name + b" ", b" " + name, name + b"\0", folded]
    names += [name.replace(b":", other) for other in (b"", b"%3a", b"\0", b"\\:", b"\r\n:")]
    names += [name.replace(b" ", other) for other in (b"", b"\t", b"%20", b"\n ")]
    breaks = (b"\n", b"\r\n ", b"\r\n\t", b"\n ", b"\n\t", b" ", b"\0", b"\r", b"%0a", b"\\n")
    values = [value.replace(b"\n", other) for other in breaks]
    for one, other in product(names, values):
        yield one + b": " + other + b"\r\n"
        yield one + b":" + other + b"\r\n"
    exact = name + b": " + value + b"\r\n"
    yield exact * 2
    yield name + b": other\r\n" + exact
    yield b"X: y\n" + exact


@pytest.mark.parametrize("path", _PATHS)
def test_no_header_opens_a_closed_path(target: Server, path: str) -> None:
    name, value = required_header()
    # The first path gets every line, the other paths get only the simple ones.
    simple = [name + b": " + value.replace(b"\n", other) + b"\r\n" for other in (b"\n", b"\r\n ")]
    for line in (b"", *(http_lines() if path == _PATHS[0] else simple)):
        status = raw.http(target.http_port, request(path, line))
        assert status in (None, 400, 403), f"{status} to {line!r}"
    assert raw.http(target.http_port, request("GET /v2/health/ready", b"")) == 200


@pytest.mark.parametrize(
    "path",
    [
        "//v2/repository/index",
        "/v2//repository/index",
        "/V2/repository/index",
        "/v2/repository/%69ndex",
        "/v2/health/../repository/index",
        "/v2/repository/index?v2/health/live",
        "/v2/repository/index/",
        "http://localhost/v2/repository/index",
    ],
)
def test_no_spelling_of_a_path_opens_it(target: Server, path: str) -> None:
    assert raw.http(target.http_port, request(f"POST {path}", b"")) in (None, 400, 403, 404)


def test_no_header_in_a_trailer_opens_a_path(target: Server) -> None:
    name, value = required_header()
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailer = name + b": " + value + b"\r\n\r\n"
    status = raw.http(target.http_port, head + b"2\r\n{}\r\n0\r\n" + trailer)
    assert status in (None, 400, 403)


def test_this_client_opens_what_asks_for_a_header_that_can_be_sent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A space in the header's name stops gRPC clients, but no HTTP client."""
    monkeypatch.setattr(launch, "_CLOSED", "sent with blanks=no")
    with serve({}) as server:
        line = b"sent with blanks: no\r\n"
        assert raw.http(server.http_port, request(_PATHS[0], line)) == 200
        assert raw.http(server.http_port, request(_PATHS[0], b"")) == 403
