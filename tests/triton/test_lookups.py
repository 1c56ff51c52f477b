"""Drafts from lookups on real servers: answers equal the target's; counters show the source."""

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cluster.processes import until
from specdec.client import Client, Connection, Request
from specdec.jobs.verify import VerificationPlan, measured
from specdec.servers.kind import kind
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import RepositoryPlan
from support.shipped_pair import MAX_DRAFT_TOKENS
from support.triton_server import Server
from triton.conftest import Serve

NEW_TOKENS = 64
CLIENTS = 16


@pytest.fixture(scope="module", params=["fixed", "adaptive", "mixed"])
def lookups(
    request: pytest.FixtureRequest, serve: Serve, draft_target_plan: RepositoryPlan
) -> Iterator[Server]:
    """Yield a server that drafts with lookups alone, or also with a draft model."""
    lengths = None if request.param == "fixed" else DraftLengths(0, MAX_DRAFT_TOKENS)
    draft = draft_target_plan.draft if request.param == "mixed" else None
    plan = replace(draft_target_plan, lookup_min_match=1, adaptive=lengths, draft=draft)
    with serve(plan) as running:
        yield running


def by_source(server: Server, name: str, source: str) -> float:
    """Return a counter of one source, or 0 before its first draft."""
    lines = server.get_metrics().splitlines()
    label = f'source="{source}"'
    values = [line.split()[-1] for line in lines if line.startswith(name) and label in line]
    return float(values[0]) if values else 0.0


@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_those_of_the_target(
    lookups: Server, prompts: list[str], stream: bool
) -> None:
    def equal(prompt: str) -> bool:
        asked = Request(prompt, max_tokens=NEW_TOKENS, stream=stream)
        plain = replace(asked, model="ensemble", stream=False)
        with Client(Connection(lookups.url)) as client:
            return client.ask(asked).text == client.ask(plain).text

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert all(pool.map(equal, prompts[:CLIENTS]))
    again = itertools.cycle(prompts)

    def accepts() -> bool:
        if by_source(lookups, "specdec_accepted_tokens_by_source_total", "lookup"):
            return True
        assert equal(next(again))
        return False

    # An adaptive policy depends on measured times, and may draft nothing on a busy machine.
    until(accepts, lambda: "no draft of a lookup is accepted")
    accepted = by_source(lookups, "specdec_accepted_tokens_by_source_total", "lookup")
    drafted = by_source(lookups, "specdec_draft_tokens_by_source_total", "lookup")
    rounds = by_source(lookups, "specdec_rounds_by_source_total", "lookup")
    assert drafted >= accepted > 0
    assert rounds > 0


def test_sources_add_up(lookups: Server) -> None:
    for name in ("draft_tokens", "accepted_tokens"):
        parts = [
            by_source(lookups, f"specdec_{name}_by_source_total", s) for s in ("model", "lookup")
        ]
        assert sum(parts) == lookups.metric(f"specdec_{name}_total")


def test_request_without_drafts_has_no_lookups(lookups: Server) -> None:
    before = by_source(lookups, "specdec_draft_tokens_by_source_total", "lookup")
    with Client(Connection(lookups.url)) as client:
        client.ask(Request("a a a a a a", max_tokens=NEW_TOKENS, draft_tokens=0))
    assert by_source(lookups, "specdec_draft_tokens_by_source_total", "lookup") == before


def test_verification_counts_drafts_by_source(lookups: Server) -> None:
    plan = VerificationPlan(
        plan_hash="0" * 16,
        kind=kind("bls"),
        compares=True,
        client_loop=False,
        server=lookups.url,
        draft_server=None,
        metrics=f"127.0.0.1:{lookups.metrics_port}",
        draft_tokens=4,
        prompts=None,
        prompts_name="",
        max_prompts=8,
        max_tokens=NEW_TOKENS,
    )
    result = asyncio.run(measured(plan))
    assert result["matched"] == result["prompts"] == 8
    sources = {source["name"]: source for source in result.get("sources", [])}
    # An adaptive policy depends on measured times, and may draft nothing on a busy machine.
    assert sources.keys() <= {"model", "lookup"}
    assert bool(sources) == (result["draftedTokens"] > 0)
    for name in ("draftedTokens", "acceptedTokens"):
        assert sum(source[name] for source in sources.values()) == result[name]
