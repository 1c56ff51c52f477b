"""The verification Job's program against real servers, for every way of speculating."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specdec.jobs.verify import Plan, measured
from support.triton_server import Server

PROMPTS = 6


def run(
    server: Server, way: str, draft_tokens: int = 4, metrics: str | None = None
) -> dict[str, Any]:
    plan = Plan(
        plan_hash="0" * 16,
        path=way,
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


@pytest.mark.parametrize("way", ["Bls", "Loop"])
def test_a_pair_is_on_and_lossless(way: str, server: Server) -> None:
    found = run(server, way)
    assert (found["prompts"], found["matched"], found["failed"]) == (PROMPTS, PROMPTS, 0)
    assert found["active"] is True
    assert 0 < found["acceptedTokens"] <= found["draftedTokens"]
    assert found["acceptancePercent"] > 30
    assert 1 < float(found["tokensPerRound"]) <= 5
    assert found["speedupPercent"] > 0


def test_a_loop_without_drafts_is_off(server: Server) -> None:
    found = run(server, "Loop", draft_tokens=0)
    assert (found["active"], found["draftedTokens"]) == (False, 0)
    assert found["matched"] == PROMPTS


def test_a_release_whose_answers_tell_no_drafts_is_seen_by_its_counters(
    older_server: Server,
) -> None:
    counters = f"127.0.0.1:{older_server.metrics_port}"
    found = run(older_server, "Bls", metrics=counters)
    assert (found["matched"], found["active"]) == (PROMPTS, True)
    assert 0 < found["acceptedTokens"] <= found["draftedTokens"]
    assert float(found["tokensPerRound"]) > 1


@pytest.mark.parametrize("metrics", [None, "127.0.0.1:1"])
def test_without_its_counters_nothing_is_said_of_its_drafts(
    metrics: str | None, older_server: Server
) -> None:
    found = run(older_server, "Bls", metrics=metrics)
    assert found["matched"] == PROMPTS
    assert "draftedTokens" not in found


def test_lookahead_is_seen_by_its_steps(lookahead_server: Server) -> None:
    found = run(lookahead_server, "Engine")
    assert (found["prompts"], found["active"]) == (PROMPTS, True)
    assert float(found["tokensPerRound"]) > 1
    assert "matched" not in found


def test_an_engine_that_answers_at_once_shows_no_steps(older_server: Server) -> None:
    found = run(older_server, "Engine")
    assert (found["prompts"], found["active"]) == (PROMPTS, False)
    assert "rounds" not in found


def test_an_engine_without_drafts_is_off(server: Server) -> None:
    """The target's engine alone, asked without draft tokens, gives one token a step."""
    found = run(server, "Engine")
    assert found["active"] is False
    assert found["tokensPerRound"] == "1.00"
