"""The verification Job's program against real servers, for every way to draft."""

import asyncio
from typing import Any

import pytest

from specdec.jobs.verify import VerificationPlan, measured
from specdec.servers.kind import kind
from support.triton_server import Server

PROMPTS = 6


def run(
    server: Server,
    draft_tokens: int = 4,
    metrics: str | None = None,
    *,
    compares: bool = True,
    loop: bool = False,
) -> dict[str, Any]:
    plan = VerificationPlan(
        plan_hash="0" * 16,
        kind=kind("bls"),
        compares=compares,
        client_loop=loop,
        server=server.url,
        draft_server=None,
        metrics=metrics,
        draft_tokens=draft_tokens,
        prompts=None,
        prompts_name="",
        max_prompts=PROMPTS,
        max_tokens=24,
    )
    return asyncio.run(measured(plan))


@pytest.mark.parametrize("loop", [False, True])
def test_a_pair_is_active_and_lossless(loop: bool, server: Server) -> None:
    result = run(server, loop=loop)
    assert (result["prompts"], result["matched"], result["failed"]) == (PROMPTS, PROMPTS, 0)
    assert result["active"] is True
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]
    assert result["acceptancePercent"] > 30
    assert 1 < float(result["tokensPerRound"]) <= 5
    assert result["speedupPercent"] > 0


def test_a_loop_without_drafts_is_inactive(server: Server) -> None:
    result = run(server, draft_tokens=0, loop=True)
    assert (result["active"], result["draftedTokens"]) == (False, 0)
    assert result["matched"] == PROMPTS


def test_drafts_come_from_counters_where_answers_report_none(
    older_server: Server,
) -> None:
    counters = f"127.0.0.1:{older_server.metrics_port}"
    result = run(older_server, metrics=counters)
    assert (result["matched"], result["active"]) == (PROMPTS, True)
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]
    assert float(result["tokensPerRound"]) > 1


@pytest.mark.parametrize("metrics", [None, "127.0.0.1:1"])
def test_without_counters_drafts_are_not_reported(
    metrics: str | None, older_server: Server
) -> None:
    result = run(older_server, metrics=metrics)
    assert result["matched"] == PROMPTS
    assert "draftedTokens" not in result


def test_lookahead_is_measured_by_its_steps(lookahead_server: Server) -> None:
    result = run(lookahead_server, compares=False)
    assert (result["prompts"], result["active"]) == (PROMPTS, True)
    assert float(result["tokensPerRound"]) > 1
    assert "matched" not in result


def test_an_engine_that_answers_at_once_shows_no_steps(older_server: Server) -> None:
    result = run(older_server, compares=False)
    assert (result["prompts"], result["active"]) == (PROMPTS, False)
    assert "rounds" not in result


def test_an_engine_without_drafts_is_inactive(server: Server) -> None:
    """Without draft tokens, the target's engine gives one token per step."""
    result = run(server, compares=False)
    assert result["active"] is False
    assert result["tokensPerRound"] == "1.00"
