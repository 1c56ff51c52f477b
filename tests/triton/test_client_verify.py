"""Verification against real servers: equal answers, and a checkpoint that differs."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from specdec.client.connection import Connection
from specdec.client.dataset import Entry, built_in
from specdec.client.verification import Options, Verification, verify
from specdec.tools.cli.app import app
from specdec.triton.repository import RepositoryPlan
from support.triton_server import Server
from triton.conftest import Serve

NEW_TOKENS = 16


@pytest.fixture(scope="module")
def other_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server without a draft, whose target is another checkpoint: the pair's draft."""
    draft = draft_target_plan.draft
    assert draft is not None
    plan = replace(draft_target_plan, target=draft, draft=None, draft_tokens=0)
    with serve(plan) as running:
        yield running


def run(
    server: Server,
    entries: list[Entry],
    baseline: Server | None = None,
    metrics: str | None = None,
    concurrency: int = 8,
    **options: Any,
) -> Verification:
    asked = verify(
        entries,
        Options(**{"max_tokens": NEW_TOKENS, **options}),
        Connection(server.url),
        baseline=None if baseline is None else Connection(baseline.url),
        metrics=metrics,
        concurrency=concurrency,
    )
    return asyncio.run(asked)


def test_a_hundred_prompts_give_the_targets_answers(server: Server) -> None:
    result = run(server, built_in())
    assert (result.prompts, result.matched, result.failures) == (100, 100, ())
    assert result.exit_status == 0
    assert result.draft_tokens is not None
    assert result.rounds is not None
    assert result.draft_tokens > result.rounds > 100
    assert 20 < (result.acceptance_percent or 0) < 100
    assert 1 < (result.tokens_per_round or 0) < 5


@pytest.mark.parametrize("against", ["ensemble", "bls", "target"])
def test_the_clients_loop_and_every_baseline_agree(server: Server, against: str) -> None:
    entries = [replace(entry, max_tokens=8) for entry in built_in()[:6]]
    loop = run(server, entries, against=against, client_loop=True)
    alone = run(server, entries, concurrency=1, against=against, draft_tokens=4)
    assert loop.matched == alone.matched == 6
    assert loop.compared == ("tokens" if against == "target" else "text")
    assert loop.draft_tokens == alone.draft_tokens
    assert loop.accepted_tokens == alone.accepted_tokens
    assert loop.rounds == alone.rounds


def test_concurrent_prompts_get_the_same_answers(server: Server) -> None:
    entries = built_in()[:12]
    alone = run(server, entries, concurrency=1)
    together = run(server, entries, concurrency=12)
    assert alone.matched == together.matched == 12
    # A late request of a batch proposes fewer tokens, which never saves a round.
    assert (together.rounds or 0) >= (alone.rounds or 1)


def test_another_checkpoint_as_baseline_differs(server: Server, other_server: Server) -> None:
    result = run(server, built_in()[:12], baseline=other_server)
    assert result.exit_status == 1
    assert result.different > 0
    assert result.matched + result.different == 12
    first = result.divergence
    assert first is not None
    assert first.prompt == built_in()[first.prompt_index].prompt
    assert first.position is not None
    assert first.character is not None
    assert first.expected[: first.character] == first.got[: first.character]
    assert first.expected_token != first.got_token
    assert first.expected_token_text in first.expected
    assert first.got_token_text in first.got
    exact = run(server, built_in()[:12], baseline=other_server, client_loop=True)
    assert exact.compared == "tokens"
    assert exact.divergence is not None
    assert exact.divergence.prompt_index == first.prompt_index
    assert exact.divergence.position == first.position


def test_counts_come_from_metrics_where_a_release_reports_none(older_server: Server) -> None:
    entries = built_in()[:4]
    silent = run(older_server, entries)
    assert silent.matched == 4
    assert (silent.draft_tokens, silent.rounds, silent.acceptance_percent) == (None, None, None)
    result = run(older_server, entries, metrics=f"127.0.0.1:{older_server.metrics_port}")
    assert result.matched == 4
    assert (result.draft_tokens or 0) > (result.rounds or 0) > 0
    assert (result.tokens_per_round or 0) > 1


def test_a_refused_prompt_does_not_affect_the_others(server: Server) -> None:
    entries = [Entry("def f(x): return x\n" * 400), built_in()[0]]
    result = run(server, entries)
    assert (result.matched, result.different, result.exit_status) == (1, 0, 2)
    [failure] = result.failures
    assert (failure.prompt_index, failure.kind) == (0, "refused")
    assert "more than the limit of 511 for a prompt" in failure.sentence


def command(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["verify", "--max-tokens", "8", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_command_ends_with_0_on_equal_and_1_with_the_first_difference(
    server: Server, other_server: Server
) -> None:
    status, stdout, stderr = command("--url", server.url, "--limit", "12", "--json")
    assert (status, stderr) == (0, "")
    assert json.loads(stdout)["matched"] == 12
    against = ["--baseline-url", other_server.url]
    status, stdout, _ = command("--url", server.url, "--limit", "12", *against)
    assert status == 1
    assert re.search(r"^prompt \d+ differs at token \d+, character \d+", stdout, re.MULTILINE)
    assert re.search(r"^ +\^$", stdout, re.MULTILINE)


def test_command_runs_the_loop_over_two_servers(server: Server, other_server: Server) -> None:
    arguments = ["--client-loop", "--draft-url", other_server.url, "--limit", "4", "--json"]
    status, stdout, stderr = command("--url", server.url, *arguments)
    assert (status, stderr) == (0, "")
    result = json.loads(stdout)
    assert (result["matched"], result["compared"]) == (4, "tokens")
    assert result["accepted_tokens"] > 0


def test_command_reports_that_nothing_was_drafted(other_server: Server) -> None:
    status, stdout, _ = command("--url", other_server.url, "--limit", "4")
    assert status == 0
    assert stdout.splitlines()[-1].startswith("nothing was drafted")
