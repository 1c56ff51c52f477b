"""The benchmark on a real server with the shipped pair: its counts against the server's own."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from specdec.bench import Settings, measure
from specdec.client.connection import Connection
from specdec.command import app
from triton.server import Server

COUNTS = ("draft_tokens", "accepted_tokens", "rounds", "generated_tokens")


def counts(server: Server) -> list[float]:
    return [server.metric(f"specdec_{name}_total") for name in COUNTS]


@pytest.mark.parametrize("fixture", ["server", "newer_server", "older_server"])
def test_counts_are_the_servers_own(request: pytest.FixtureRequest, fixture: str) -> None:
    server: Server = request.getfixturevalue(fixture)
    # One prompt, decoded greedily: every answer has the same rounds, those not reported too.
    settings = Settings(
        prompts=["def read_lines(path):\n"],
        concurrency=[3],
        requests=6,
        output_tokens=24,
        draft_tokens=[4],
        warmup=0,
    )
    where = Connection(server.url)
    first = counts(server)
    metrics_url = f"127.0.0.1:{server.metrics_port}"
    report = asyncio.run(measure(where, settings, metrics_url=metrics_url))
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
    assert level.baseline.acceptance_percent is None


def test_command_on_a_real_server(server: Server) -> None:
    arguments = ["bench", "--url", server.url, "--requests", "3", "--output-tokens", "8", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["levels"][0]["speculative"][0]["draft_tokens"] is None
    refused = CliRunner().invoke(app, [*arguments, "--draft-tokens", "99"])
    assert refused.exit_code == 1
    assert "99" in refused.stderr
