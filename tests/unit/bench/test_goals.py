"""The client benchmarks at small scale, without their goals, which need an idle machine."""

from __future__ import annotations

import asyncio

import pytest

from bench import client, loop, openai
from specdec.client.connection import Connection


@pytest.mark.slow
def test_client_times_are_compared_with_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLIENTS", 2)
    monkeypatch.setattr(client, "CHUNKS", 3)
    monkeypatch.setattr(client, "CHUNK_SECONDS", 0.01)
    with client.stamping() as ports:
        for protocol in ("http", "grpc"):
            url = f"127.0.0.1:{ports[protocol]}"
            exchanges, _ = asyncio.run(client.load(url, protocol))
            for first, gaps in map(client.errors, exchanges):
                assert len(gaps) == 2
                # Times of another clock, or of the first request, would differ by far more.
                assert all(0 <= error < 10_000 for error in (first, *gaps))
                assert first > 0


@pytest.mark.slow
def test_openai_pieces_have_a_cost_and_a_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "STREAMS", 2)
    assert openai.request_microseconds(chunks=2, seconds=0.01, repeats=1) > 0
    with openai.serving(2, 0.01) as (endpoint, ports):
        firsts = asyncio.run(openai.latencies(ports, 1))
        assert endpoint.memory_bytes() > 1 << 20
    assert all(len(times) == 2 and min(times) > 0 for times in firsts.values())


@pytest.mark.slow
def test_loop_accepts_every_draft_token_of_instant_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "ROUNDS", 3)
    with loop.serving() as url:
        assert asyncio.run(loop.loop(Connection(url), 2)) > 0
