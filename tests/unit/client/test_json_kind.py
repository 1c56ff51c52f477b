"""A kind of server with its own JSON API is asked, verified and measured by its `Requests`."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from specdec.client import Client, Connection, Counts, Entry, Request, verify
from specdec.client.load import Settings, measure
from specdec.client.verification import Options
from specdec.servers.chunk import Chunk
from specdec.servers.encoding import Declaration, JsonCall, Requests

PATH = "/toy"


class Toy(Requests):
    """A server with one model, whose requests turn drafts off, and whose answers count them."""

    path = PATH
    drafts_by_request = True

    @override
    def takes_draft_length(self, declared: Declaration) -> bool:
        return True

    @override
    def encode(self, request: Request, declared: Declaration) -> JsonCall:
        body = {"text": request.prompt, "most": request.max_tokens, "draft": request.draft_tokens}
        return JsonCall("answer", body)

    @override
    def reader(self, request: Request) -> "Toy.Reader":
        return Toy.Reader()

    class Reader:
        def read(self, response: Mapping[str, Any]) -> Chunk | None:
            return Chunk(response["output"], Counts(response["drafted"], response["accepted"]))

        def end(self) -> None:
            return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        length = 4 if body["draft"] is None else body["draft"]
        events = [
            {"output": body["text"][number], "drafted": number * length, "accepted": number}
            for number in range(min(len(body["text"]), body["most"]))
        ]
        answer = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200 if self.path == f"{PATH}/answer" else 404)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served() -> Iterator[Connection]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Connection(f"127.0.0.1:{server.server_address[1]}", path=PATH)
        server.shutdown()
        thread.join()


def test_client_sends_the_call_of_the_kind_and_reads_its_events() -> None:
    with served() as connection, Client(connection, requests=Toy()) as client:
        answer = client.ask(Request("abc", "", draft_tokens=2))
    assert (answer.text, answer.chunks, answer.counts) == ("abc", 3, Counts(4, 2))


def test_verification_turns_drafts_off_for_the_baseline() -> None:
    with served() as connection:
        options = Options(model="", requests=Toy(), max_tokens=3)
        result = asyncio.run(verify([Entry("abc"), Entry("de")], options, connection))
    assert (result.prompts, result.matched, result.draft_tokens) == (2, 2, 12)


def test_benchmark_compares_requests_with_those_without_drafts() -> None:
    settings = Settings(model="", requests=4, output_tokens=4, warmup=0, resamples=100)
    with served() as connection:
        report = asyncio.run(measure(connection, settings, requests=Toy()))
    (level,) = report.levels
    assert [(arm.draft_tokens, arm.errors) for arm in level.arms] == [(0, 0), (None, 0)]
    assert level.arms[1].acceptance_percent == 25
