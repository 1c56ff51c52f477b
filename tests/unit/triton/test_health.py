"""The probes of `trtllm-serve`: what shows that it generates tokens, and what makes it fail."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from specdec.images.serving import health
from specdec.servers.kind import Probing
from specdec.servers.trtllm_serve.serving import SERVING
from specdec.triton.layout import PLAIN

PATIENCE = 100.0
MODEL = "a" * 64
# Of a start. Requests to the server in this process have this timeout.
SECONDS = 300.0
HEALTH, GENERATE, PAGE = "/health", "/v1/completions", "/prometheus/metrics"
COUNTER = 'trtllm_request_success_total{finished_reason="%s"} %d.0\n'


class Server(ThreadingHTTPServer):
    """A server with a list of statuses for each path; with None, a token does not arrive."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.health: list[int] = [200]
        self.generate: list[int | None] = [200]
        self.answer = '{"choices": [{"text": "a"}]}'
        self.page = ""
        self.asked = 0
        self.released = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == PAGE:
            self._reply(200, self.server.page)
        elif self.path == HEALTH:
            self._reply(self.server.health[0])
        else:
            self._reply(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        one = (body["model"], body["max_tokens"], self.headers["Content-Type"])
        if self.path != GENERATE or one != (MODEL, 1, "application/json"):
            self._reply(400)
            return
        self.server.asked += 1
        left = self.server.generate
        status = left.pop(0) if len(left) > 1 else left[0]
        if status is None:
            self.server.released.wait()
        else:
            self._reply(status, self.server.answer)

    def _reply(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    @override
    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""


def plan(port: int, seconds: float = SECONDS) -> health.Plan:
    """The plan that the operator writes, for the port of a test's server."""
    probing = Probing(PLAIN, (), f"/models/{MODEL}", "name", seconds, PATIENCE)
    fields = json.loads(SERVING.probes(probing).startup[-1])
    return health.Plan(**{**fields, "port": port})


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "health"
    monkeypatch.setattr(health, "STATE", path)
    return path


@contextmanager
def running() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server that has passed its startup probe."""
    with running() as started:
        assert health.startup(plan(started.port)) == ""
        started.asked = 0
        yield started


def age(seconds: float) -> None:
    record = health.load()
    assert record is not None
    record.at -= seconds
    record.asked -= seconds
    health.save(record)


def test_a_start_is_a_token() -> None:
    with running() as server:
        server.generate = [500, 503, 200]
        assert health.startup(plan(server.port)) == ""
        assert health.load() is not None


class Clock:
    """A clock that only `sleep` moves, by a third of the time that tests give to a start."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += SECONDS / 3


def test_the_last_failure_of_a_start_is_the_message() -> None:
    clock = Clock()
    with running() as server:
        server.generate = [500, 503]
        problem = health.startup(plan(server.port), clock.monotonic, clock.sleep)
        assert problem == "/v1/completions answered 503"
        assert server.asked == 3
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert health.startup(plan(port, 0.2)) == "/v1/completions did not answer within 0 s"
    problem = health.startup(plan(port, 0.2))
    assert problem == "/v1/completions did not answer (ConnectionRefusedError)"
    assert health.load() is None


def test_a_start_that_begins_late_asks_once() -> None:
    """A machine may stand still between two reads of the clock."""
    clock = iter([0.0, 1000.0])
    with running() as server:
        server.generate = [503]
        problem = health.startup(plan(server.port), lambda: next(clock), lambda _: None)
        assert problem == "/v1/completions answered 503"


def test_only_an_idle_server_is_asked(server: Server) -> None:
    assert health.readiness(plan(server.port)) == ""
    assert server.asked == 0, "it has given a token just now"
    age(20)
    assert health.readiness(plan(server.port)) == ""
    assert server.asked == 1
    age(20)
    server.page = COUNTER % ("length", 1)
    assert health.readiness(plan(server.port)) == ""
    assert server.asked == 1, "a request has ended"


def test_a_request_whose_client_left_is_no_proof(server: Server) -> None:
    age(20)
    server.page = COUNTER % ("cancelled", 1)
    assert health.readiness(plan(server.port)) == ""
    assert server.asked == 1


def test_a_page_that_disappears_is_no_proof(server: Server) -> None:
    server.page = COUNTER % ("length", 1)
    assert health.readiness(plan(server.port)) == ""
    age(20)
    server.page = ""
    server.generate = [500]
    assert health.readiness(plan(server.port)) == "/v1/completions answered 500"


def test_a_refused_token_fails_at_once_and_until_one_arrives(server: Server) -> None:
    age(20)
    server.generate = [500]
    for _ in range(2):
        assert health.readiness(plan(server.port)) == "/v1/completions answered 500"
        assert health.liveness(plan(server.port)) == ""
    age(PATIENCE)
    assert health.liveness(plan(server.port)) == "no token for more than 100 s"
    server.generate = [200]
    assert health.readiness(plan(server.port)) == ""
    assert health.liveness(plan(server.port)) == ""


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"choices": []}'])
def test_an_answer_without_a_token_is_none(server: Server, answer: str) -> None:
    age(20)
    server.answer = answer
    assert health.readiness(plan(server.port)) == "/v1/completions answered without choices"


def test_a_token_may_wait_behind_requests(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock stands still, so the time of a check is that of its request for a token.
    monkeypatch.setattr(health, "time", Clock(time.monotonic()))
    monkeypatch.setattr(health, "_CHECK", 1.0)
    monkeypatch.setattr(health, "_REPLY", SECONDS)
    server.generate = [None]
    age(20)
    assert health.readiness(plan(server.port)) == ""
    age(PATIENCE)
    assert "/v1/completions did not answer" in health.readiness(plan(server.port))
    assert health.liveness(plan(server.port)) == "no token for more than 100 s"


def test_the_servers_own_report_comes_first(server: Server) -> None:
    server.health = [503]
    assert health.readiness(plan(server.port)) == "/health answered 503"
    assert health.liveness(plan(server.port)) == "/health answered 503"
    assert server.asked == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": 1}'])
def test_a_damaged_record_is_none(server: Server, state: Path, text: str) -> None:
    state.write_text(text, "ascii")
    assert health.load() is None
    assert health.liveness(plan(server.port)) == ""
    assert health.readiness(plan(server.port)) == ""
