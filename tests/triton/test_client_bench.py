"""The benchmark on a real server with the shipped pair: its counts equal the server's counters."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from bench.baseline.load import reads
from cluster.processes import until
from specdec.client import Connection, Request
from specdec.client.load import Settings, measure
from specdec.client.load.exchange import OUTPUTS, sample
from specdec.client.load.opened import Protocol, endpoint
from specdec.servers.chunk import Deltas
from specdec.servers.kind import kind
from specdec.tools.cli.app import app
from specdec.triton.model_names import BLS
from support.triton_server import Server

COUNTS = ("draft_tokens", "accepted_tokens", "rounds", "generated_tokens")


def counts(server: Server) -> list[float]:
    # Triton opens the metrics port last.
    until(lambda: reads(server), lambda: "the metrics do not answer")
    return [server.metric(f"specdec_{name}_total") for name in COUNTS]


def address(server: Server, protocol: Protocol) -> str:
    return f"127.0.0.1:{server.http_port if protocol == 'http' else server.grpc_port}"


@pytest.mark.parametrize(
    ("fixture", "protocol"),
    [
        ("server", "grpc"),
        ("server", "http"),
        ("newer_server", "http"),
        ("older_server", "http"),
        ("older_server", "grpc"),
    ],
)
def test_counts_are_the_servers_own(
    request: pytest.FixtureRequest, fixture: str, protocol: Protocol
) -> None:
    server: Server = request.getfixturevalue(fixture)
    # With one prompt and greedy decoding, all answers have the same rounds, even unreported ones.
    settings = Settings(
        prompts=["def read_lines(path):\n"],
        concurrency=[3],
        requests=6,
        output_tokens=24,
        draft_tokens=[4],
        warmup=0,
    )
    where = Connection(address(server, protocol))
    first = counts(server)
    metrics_url = f"127.0.0.1:{server.metrics_port}"
    report = asyncio.run(measure(where, settings, metrics_url=metrics_url, protocol=protocol))
    drafted, accepted, rounds, generated = (
        after - before for before, after in zip(first, counts(server), strict=True)
    )
    [level] = report.levels
    [arm] = level.speculative
    assert report.errors == 0
    assert generated == 2 * (6 + 1) * 24
    assert arm.output_tokens == 6 * 24
    assert arm.output_tokens_counted is (fixture == "newer_server")
    assert arm.acceptance_percent is not None
    assert arm.tokens_per_round is not None
    assert 100 * accepted / drafted == pytest.approx(arm.acceptance_percent, rel=1e-6)
    assert 7 * 24 / rounds == pytest.approx(arm.tokens_per_round, rel=1e-6)
    assert arm.speedup_percent is not None
    streamed = fixture != "older_server"
    assert report.streamed is streamed
    assert (arm.time_to_first_token is not None) is streamed
    assert len(arm.acceptance_by_position) == (4 if streamed else 0)
    assert level.arms[0].acceptance_percent is None


def test_command_on_a_real_server(server: Server) -> None:
    url = address(server, "http")
    arguments = ["bench", "--url", url, "--requests", "3", "--output-tokens", "8", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["levels"][0]["speculative"][0]["draft_tokens"] is None
    refused = CliRunner().invoke(app, [*arguments, "--draft-tokens", "99"])
    assert refused.exit_code == 1
    assert "99" in refused.stderr


@pytest.mark.parametrize("fixture", ["server", "older_server"])
def test_answers_do_not_depend_on_the_protocol(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    server: Server = request.getfixturevalue(fixture)
    stream = fixture == "server"
    sent = Request("def read_lines(path):\n", max_tokens=24, draft_tokens=4, stream=stream)

    async def parts_of(protocol: Protocol) -> list[tuple[str, list[int]]]:
        """Return the text and the counts of each part of an answer."""
        async with endpoint(Connection(address(server, protocol)), protocol) as where:
            model = await where.model(BLS)
            requests = kind("bls").requests
            message = where.message(requests.encode(sent, model), streamed=model.streams)
            line = where.client(streamed=model.streams)
            exchange = await line.send(0, message)
            await line.close()
        assert sample(exchange, Deltas()).error is None
        parts = [parts for _, parts in exchange.responses() if parts]
        names = [name for name in OUTPUTS[1:] if name in model.outputs]
        texts = [part["text_output"].item() for part in parts]
        return [
            (
                text.decode() if isinstance(text, bytes) else text,
                [int(part[name].item()) for name in names if part[name].size],
            )
            for text, part in zip(texts, parts, strict=True)
        ]

    over_http, over_grpc = asyncio.run(parts_of("http")), asyncio.run(parts_of("grpc"))
    assert over_http == over_grpc
    assert len(over_http) > 1 or fixture == "older_server"
