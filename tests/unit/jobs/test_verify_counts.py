"""The verification of a server whose engine drafts, and whose metrics count draft tokens."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.jobs import verify, verify_counts
from specdec.jobs.result import JobError
from specdec.servers.kind import kind
from unit.jobs.termination import read_result

Json = dict[str, Any]
KIND = kind("trtllm_serve")
ENTRIES = [Entry("one", 4), Entry("two", None)]


class Service(ThreadingHTTPServer):
    """A server that reports `drafted` draft tokens and refuses the prompts in `refused`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[Json] = []
        self.refused: set[str] = set()
        self.counts = True
        self.restarts = False
        self.drafted = 90

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._reply(json.dumps({"data": [{"id": "served", "owned_by": "tensorrt_llm"}]}))
        elif self.server.counts:
            name = "trtllm_spec_decode_drafted_tokens_total"
            accepted = name.replace("drafted", "accepted")
            drafted = self.server.drafted
            self._reply(f"{name} {drafted}.0\n{accepted} {drafted // 2}.0\n")
        else:
            self._reply("trtllm_request_success_total 1.0\n")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if body["prompt"] in self.server.refused:
            self._reply(json.dumps({"error": {"message": "no such prompt"}}), 400)
            return
        self.server.drafted = 1 if self.server.restarts else self.server.drafted + 10
        choice = {"text": "answer", "finish_reason": "stop"}
        self._reply(json.dumps({"choices": [choice], "usage": {"completion_tokens": 1}}))

    @override
    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""

    def _reply(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def serving() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.02,))
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(KIND.counters), "settles_seconds", 0.5)
    monkeypatch.setattr(verify_counts, "_POLL", 0.01)


def counted(service: Service, metrics: str | None = "") -> Json:
    address = service.address if metrics == "" else metrics
    connection = Connection(service.address, path=KIND.requests.path)
    return asyncio.run(verify_counts.counted(KIND, connection, address, ENTRIES, 8))


def test_the_difference_of_the_counters_is_reported() -> None:
    with serving() as service:
        assert counted(service) == {
            "prompts": 2,
            "failed": 0,
            "active": True,
            "draftedTokens": 20,
            "acceptedTokens": 10,
            "acceptancePercent": 50,
        }
        assert [(b["prompt"], b["max_tokens"]) for b in service.bodies] == [("one", 4), ("two", 8)]
        assert all(b["model"] == "served" and b["temperature"] == 0 for b in service.bodies)


def test_a_server_that_counts_none_or_restarted_has_no_counts() -> None:
    bare = {"prompts": 2, "failed": 0, "active": False}
    with serving() as service:
        assert counted(service, None) == bare
        service.restarts = True
        assert counted(service) == bare
        service.counts = False
        assert counted(service) == bare
        assert counted(service, "127.0.0.1:1") == bare


def test_a_refused_prompt_is_counted_and_quoted_and_all_are_an_error() -> None:
    with serving() as service:
        service.refused = {"one"}
        result = counted(service)
        assert (result["prompts"], result["failed"]) == (1, 1)
        assert "no such prompt" in result["failure"]
        service.refused = {"one", "two"}
        with pytest.raises(JobError, match=r"no prompt has an answer: .*no such prompt"):
            counted(service)


def test_the_job_reports_the_counts() -> None:
    with serving() as service:
        plan = {
            "planHash": "0" * 16,
            "kind": "trtllm_serve",
            "compares": False,
            "server": service.address,
            "metrics": service.address,
            "draftTokens": 0,
            "maxPrompts": 2,
            "maxTokens": 4,
        }
        assert verify.main(["--plan", json.dumps(plan)]) == 0
    assert read_result()["verification"]["draftedTokens"] == 20
