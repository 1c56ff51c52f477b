"""Publicly known faults of this tritonserver over HTTP, and the option that prevents them."""

import signal
from collections.abc import Iterator

import pytest

from cluster.processes import until
from specdec.triton.repository import RepositoryPlan
from support.triton_client import ask, text
from support.triton_server import Server
from triton import raw
from triton.conftest import Serve

_FIXED = (
    "this tritonserver survives {}: its fault is fixed. Take it out of this test, and correct "
    "`triton` and `advisories` in support.yaml and its paragraph in docs/operations.md"
)


def request(path: str, framing: str, body: bytes) -> bytes:
    head = f"POST /v2/models/ensemble/{path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"
    return head.encode() + body


def nested(path: str) -> bytes:
    """Return 200 KB of nested JSON: the parser recurses per bracket and exhausts its stack."""
    return request(path, "Content-Length: 200000", b"[" * 200_000)


def chunked(path: str) -> bytes:
    """Return 3.6 MB: the server has an entry per chunk on its stack (CVE-2025-23310, 23311)."""
    chunks = b"1\r\n \r\n" * 600_000 + b"0\r\n\r\n"
    return request(path, "Transfer-Encoding: chunked", chunks)


ATTACKS = {
    "deep-json": nested("generate"),
    "deep-json-streamed": nested("generate_stream"),
    "small-chunks": chunked("generate"),
    "small-chunks-streamed": chunked("generate_stream"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_single_body_crashes_the_server(
    serve: Serve, draft_target_plan: RepositoryPlan, name: str
) -> None:
    """This test fails with the first fixed tritonserver; then update the documentation."""
    with serve(draft_target_plan) as server:
        raw.http(server.http_port, ATTACKS[name])
        until(lambda: server.status() is not None, lambda: _FIXED.format(name))
        assert server.status() == -signal.SIGSEGV


@pytest.fixture(scope="module")
def closed(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    with serve(draft_target_plan, health_only=True) as running:
        yield running


@pytest.mark.parametrize("name", ATTACKS)
def test_with_health_alone_on_http_the_body_is_refused_unread(closed: Server, name: str) -> None:
    assert raw.http(closed.http_port, ATTACKS[name]) == 403
    ready = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert raw.http(closed.http_port, ready) == 200
    assert text(ask(closed.url, "ensemble", text_input="def f(", max_tokens=4))


@pytest.mark.parametrize(
    "path",
    ["v2", "v2/models/ensemble", "v2/models/ensemble/config", "v2/models/stats",
     "v2/models/ensemble/infer", "v2/repository/index", "v2/logging"],
)  # fmt: skip
def test_with_health_alone_on_http_nothing_else_is_answered(closed: Server, path: str) -> None:
    for method in ("GET", "POST"):
        head = f"{method} /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        assert raw.http(closed.http_port, head.encode()) in (403, 405)
