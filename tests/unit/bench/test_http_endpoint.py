"""The benchmark over HTTP: the same results as over gRPC, and its use of connections."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.load import Report, Settings, measure
from specdec.client.load.exchange import Exchange, Sample, sample
from specdec.client.load.http_endpoint import Http, events
from specdec.servers.chunk import Deltas
from specdec.servers.encoding import TensorCall
from unit.bench.simulated import Simulated, served
from unit.bench.simulated_http import served_http

HEAD = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = HEAD + '1a\r\ndata: {"text_output":"a"}\n\r\n0\r\n\r\n'


def run(simulated: Simulated, **values: Any) -> Report:
    with served_http(simulated) as server:
        return asyncio.run(measure(Connection(server.url), Settings(resamples=100, **values)))


@pytest.mark.parametrize("decoupled", [True, False])
def test_counts_do_not_depend_on_the_protocol(decoupled: bool) -> None:
    values: dict[str, Any] = {"concurrency": [2], "requests": 4, "draft_tokens": [4]}
    over_http = run(Simulated(decoupled=decoupled), output_tokens=12, **values)
    with served(Simulated(decoupled=decoupled)) as url:
        settings = Settings(output_tokens=12, resamples=100, **values)
        over_grpc = asyncio.run(measure(Connection(url), settings, protocol="grpc"))
    assert over_http.errors == over_grpc.errors == 0
    assert over_http.streamed is over_grpc.streamed is decoupled
    for http_level, grpc_level in zip(over_http.levels, over_grpc.levels, strict=True):
        for http_arm, grpc_arm in zip(http_level.arms, grpc_level.arms, strict=True):
            for name in (
                "requests",
                "output_tokens",
                "output_tokens_counted",
                "acceptance_percent",
                "tokens_per_round",
                "acceptance_by_position",
            ):
                assert getattr(http_arm, name) == getattr(grpc_arm, name)


def test_each_client_keeps_one_connection() -> None:
    simulated = Simulated()
    with served_http(simulated) as server:
        settings = Settings(concurrency=[3], requests=6, output_tokens=4, resamples=100)
        asyncio.run(measure(Connection(server.url), settings))
        # One connection for the model's configuration, one for the first requests, 3 clients.
        assert len(server.connections) == 1 + 1 + 3
    assert len(simulated.seen) > 2 * 6


def test_refusals_are_errors_of_their_requests_alone() -> None:
    for decoupled in (True, False):
        report = run(Simulated(decoupled=decoupled, refuse=6), requests=8, output_tokens=4)
        assert (report.ended, report.failed) == ("completed", True)
        assert 0 < report.errors < 16
        [first] = {arm.first_error for level in report.levels for arm in level.arms} - {None, ""}
        assert first is not None
        assert "refused: no more of these" in first


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("absent", RefusedError, "unknown model"),
        ("ensemble", BadRequestError, "no input num_draft_tokens"),
    ],
)
def test_unsuitable_models_are_refused(model: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        run(Simulated(), model=model)


def test_failed_connection_is_reported() -> None:
    with pytest.raises(UnreachableError, match=r"connection to .* failed"):
        asyncio.run(measure(Connection("127.0.0.1:9"), Settings()))


def test_results_before_a_lost_connection_are_kept() -> None:
    report = run(Simulated(stops_at=30), requests=40, output_tokens=4)
    assert report.ended == "unreachable"
    assert "connection to" in report.message
    assert report.levels[0].arms[0].request_latency is not None


def send_requests(url: str, count: int = 1) -> list[Sample]:
    """Return the samples of requests that a single client sends."""

    async def ask() -> list[Sample]:
        endpoint = Http(Connection(url, timeout=60))
        request = endpoint.message(TensorCall("m", {}), streamed=True)
        client = endpoint.client(streamed=True)
        samples = [sample(await client.send(number, request), Deltas()) for number in range(count)]
        await client.close()
        return samples

    return asyncio.run(ask())


@contextmanager
def scripted(*answers: str, kept: bool = False) -> Iterator[str]:
    """Yield the address of a server that sends one answer on each connection, then closes it.

    With `kept` the server closes the connection only when the next request arrives.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer.encode())
                    if kept:
                        connection.recv(4096)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_closed_idle_connection_is_opened_again() -> None:
    with scripted(ANSWER, ANSWER, ANSWER, kept=True) as url:
        assert [result.error for result in send_requests(url, 3)] == [None] * 3


def test_answer_with_connection_close_is_complete() -> None:
    closing = ANSWER.replace("\r\n", "\r\nconnection: close\r\n", 1)
    with scripted(closing, closing) as url:
        assert [result.error for result in send_requests(url, 2)] == [None] * 2


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (ANSWER[:-5], UnreachableError, "the server closed it before the answer was complete"),
        ("", UnreachableError, "the server closed it before the answer was complete"),
        ("220 mail.example ESMTP\r\n", RefusedError, "response is not HTTP"),
        ("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", RefusedError, "refused: HTTP 503"),
        (HEAD + "3\r\nabc\r\n0\r\n\r\n", RefusedError, "response is not JSON"),
        (HEAD + "0\r\n\r\n", RefusedError, "no text_output"),
    ],
)
def test_invalid_response_is_an_error(answer: str, kind: type[Exception], message: str) -> None:
    with scripted(answer) as url:
        [result] = send_requests(url)
    assert isinstance(result.error, kind)
    assert message in str(result.error)


def test_request_without_an_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"

        async def ask() -> Exchange:
            endpoint = Http(Connection(url, timeout=0.1))
            return await endpoint.client(streamed=True).send(0, b"GET / HTTP/1.1\r\n\r\n")

        error = asyncio.run(ask()).error
        assert isinstance(error, UnreachableError)
        assert "within 0.1 s" in str(error)


@pytest.mark.parametrize("size", [1, 7, 60, 1000])
def test_event_is_decoded_with_its_last_byte_for_any_chunk_size(size: int) -> None:
    texts = ["a", "é\n", "c"]
    whole = b"".join(
        b"data: %s\n\n" % json.dumps({"text_output": text}, ensure_ascii=False).encode()
        for text in texts
    )
    parts = [whole[start : start + size] for start in range(0, len(whole), size)]
    moments = [float(number + 1) for number in range(len(parts))]
    read = list(events(moments, parts, "a:1"))
    assert [event["text_output"] for _, event in read] == texts
    ends = [place for place in range(len(whole)) if whole[place : place + 2] == b"\n\n"]
    assert [moment for moment, _ in read] == [1.0 + end // size for end in ends]


def test_a_baseline_has_its_own_service() -> None:
    fast, slow = Simulated(0.8, 0.01, 0.001), Simulated(0.8, 0.01, 0.001)
    settings = Settings(requests=2, output_tokens=4, warmup=0, resamples=100)
    with served_http(fast) as served, served_http(slow) as other:
        baseline = Connection(other.url)
        report = asyncio.run(measure(Connection(served.url), settings, baseline=baseline))
    assert report.baseline_url == other.url
    [level] = report.levels
    assert [arm.requests for arm in level.arms] == [2, 2]
    assert level.speculative[0].speedup_percent is not None
    assert len(fast.seen) == len(slow.seen) == 3


def test_a_single_arm_has_no_speedup() -> None:
    with served_http(Simulated()) as server:
        settings = Settings(requests=2, output_tokens=4, warmup=0, resamples=100, single=True)
        report = asyncio.run(measure(Connection(server.url), settings))
    [level] = report.levels
    assert level.baseline is None
    assert level.speculative[0].speedup_percent is None
    assert report.recommended_draft_tokens is None


def test_a_service_is_not_compared_with_itself() -> None:
    with served_http(Simulated()) as server:
        other_name = Connection(server.url.replace("127.0.0.1", "localhost"))
        with pytest.raises(BadRequestError, match="is the measured service itself") as error:
            asyncio.run(measure(Connection(server.url), Settings(), baseline=other_name))
    assert error.value.exit_status == 2
