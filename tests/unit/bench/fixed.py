"""A report with simple numbers."""

from dataclasses import replace
from typing import Any

from specdec.client.load import Arm, Interval, Latency, Level, Report


def latency(middle: float) -> Latency:
    return Latency(middle, middle / 2, 3 * middle, *(middle * f for f in (0.8, 1, 1.2, 2, 2.5, 3)))


def arm(length: int | None, middle: float, **values: Any) -> Arm:
    chosen = length != 0
    plain = Arm(
        draft_tokens=length,
        requests=24,
        errors=0,
        first_error=None,
        seconds=10.0,
        request_throughput=2.4,
        output_token_throughput=240000 / middle,
        output_tokens=2400,
        output_tokens_counted=False,
        request_latency=latency(middle),
        time_to_first_token=latency(middle / 20),
        inter_token_latency=latency(middle / 100),
        inter_chunk_latency=latency(middle / 50),
        acceptance_percent=60.0 if chosen else None,
        tokens_per_round=3.0 if chosen else None,
        acceptance_by_position=(80.0, 64.0, 51.0) if chosen else (),
        speedup_percent=Interval(1e5 / middle, 9e4 / middle, 1.2e5 / middle) if chosen else None,
        energy_joules=1200.0,
    )
    return replace(plain, **values)


def report(**values: Any) -> Report:
    levels = tuple(
        Level(clients, arm(0, 1000.0 * clients), (arm(2, 700.0), arm(4, 500.0)), 4)
        for clients in (1, 4, 16)
    )
    plain = Report(
        format="specdec.dev/bench/v1",
        url="localhost:8001",
        model="tensorrt_llm_bls",
        started_at="2026-01-02T03:04:05Z",
        seconds=60.0,
        ended="completed",
        message="",
        requests=216,
        errors=0,
        error_percent=0.0,
        error_limit_percent=1.0,
        failed=False,
        output_tokens_per_request=100,
        seed=0,
        confidence_percent=95.0,
        resamples=2000,
        streamed=True,
        levels=levels,
        recommended_draft_tokens=4,
    )
    return replace(plain, **values)
