"""The benchmark against a server with known acceptance and step times."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from specdec.client import metrics
from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.load import Measurement, Progress, Report, Settings, measure, summary
from specdec.client.load.exchange import Exchange, sample
from specdec.client.load.summary import Turn, Turns
from specdec.servers.chunk import OUTPUT_TOKENS, Deltas
from unit.bench.simulated import Simulated, served


def run(simulated: Simulated, **values: Any) -> Report:
    with served(simulated) as url:
        return asyncio.run(measure(Connection(url), Settings(**values), protocol="grpc"))


def tokens_per_round(acceptance: float, length: int) -> float:
    """Return the expected tokens per round: Leviathan et al. 2023, equation 1."""
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


def timed(server: Simulated, settings: Settings, length: int) -> Turn:
    """Return the answers of an arm, on a clock that only the server's steps advance."""
    clock = 0.0

    def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    server.sleep = sleep
    samples, began = [], clock
    for index in range(settings.requests):
        exchange = Exchange(index, clock)
        for part in server.parts(
            {
                "num_draft_tokens": length,
                "max_tokens": settings.output_tokens,
                "random_seed": settings.seed + index,
            }
        ):
            exchange.arrivals.append(clock)
            exchange.messages.append(part)
        samples.append(sample(exchange, Deltas(frozenset({OUTPUT_TOKENS}))))
    return Turn(clock - began, samples, {}, {})


def reported(settings: Settings, blocks: Turns) -> Report:
    return summary.report(
        settings,
        {1: blocks},
        url="simulated:1",
        started=datetime.now(UTC),
        seconds=0,
        ended="completed",
        message="",
        streamed=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("acceptance", "length"), [(0.5, 2), (0.7, 6), (0.8, 4)])
def test_speedup_and_acceptance_are_those_of_the_closed_form(
    acceptance: float, length: int
) -> None:
    target, draft = 0.02, 0.002
    settings = Settings(requests=16, output_tokens=240, draft_tokens=[length])
    server = Simulated(acceptance, target, draft)
    blocks: Turns = {arm: [timed(server, settings, arm)] for arm in (0, length)}
    report = reported(settings, blocks)
    [arm] = report.levels[0].speculative
    expected = tokens_per_round(acceptance, length)
    assert arm.tokens_per_round == pytest.approx(expected, rel=0.05)
    # Draft tokens after the first rejected token count as drafted too.
    assert arm.acceptance_percent == pytest.approx(100 * (expected - 1) / length, rel=0.05)
    shares = [100 * acceptance**position for position in range(1, length + 1)]
    assert arm.acceptance_by_position == pytest.approx(shares, rel=0.05, abs=2)
    bound = 100 * expected / (length * draft / target + 1)
    assert arm.speedup_percent is not None
    assert arm.speedup_percent.value == pytest.approx(bound, rel=0.05)
    plain = report.levels[0].arms[0]
    assert plain.inter_token_latency is not None
    assert plain.inter_token_latency.p99 == pytest.approx(1000 * target)
    assert plain.output_token_throughput == pytest.approx(1 / target)
    assert arm.output_token_throughput == pytest.approx(bound / 100 / target, rel=0.05)


def test_energy_is_the_sum_over_the_turns_of_an_arm() -> None:
    settings = Settings(requests=2, output_tokens=8, draft_tokens=[4])
    server = Simulated(0.8, 0.02, 0.002)

    def turn(arm: int, begin: float, end: float) -> Turn:
        page = '# TYPE nv_energy_consumption counter\nnv_energy_consumption{{gpu_uuid="a"}} {}\n'
        before, after = (metrics.summed(page.format(joules)) for joules in (begin, end))
        return replace(timed(server, settings, arm), before=before, after=after)

    blocks: Turns = {0: [turn(0, 100, 130), turn(0, 150, 160)], 4: [turn(4, 130, 150)]}
    report = reported(settings, blocks)
    [level] = report.levels
    assert level.arms[0].energy_joules == 40
    assert level.speculative[0].energy_joules == 20


@pytest.mark.slow
def test_speedup_is_measured_over_grpc() -> None:
    # The size of the speedup depends on the load of the machine: `make bench NAME=client`
    # compares it with the closed form.
    server = Simulated(0.8, 0.03, 0.003)
    report = run(server, concurrency=[4], requests=4, output_tokens=24, draft_tokens=[4], warmup=0)
    [level] = report.levels
    [arm] = level.speculative
    assert arm.speedup_percent is not None
    assert arm.speedup_percent.low <= arm.speedup_percent.value <= arm.speedup_percent.high
    assert arm.speedup_percent.value > 120
    assert level.recommended_draft_tokens == report.recommended_draft_tokens == 4


@pytest.mark.slow
def test_counts_agree_with_those_of_the_server() -> None:
    server = Simulated(0.7)
    report = run(server, concurrency=[3], requests=20, output_tokens=40, draft_tokens=[2, 6])
    [level] = report.levels
    for arm in level.speculative:
        assert arm.draft_tokens is not None
        # The server's counts include the first requests and the warm-up, which are similar.
        counted = server.counted[arm.draft_tokens]
        assert arm.output_tokens == 20 * 40
        assert arm.acceptance_percent == pytest.approx(
            100 * counted["accepted"] / counted["drafted"], rel=0.15
        )
        assert len(arm.acceptance_by_position) == arm.draft_tokens
        assert arm.acceptance_by_position[0] == pytest.approx(70, abs=10)
        assert list(arm.acceptance_by_position) == sorted(arm.acceptance_by_position, reverse=True)
    assert level.arms[0].acceptance_percent is None
    assert level.arms[0].tokens_per_round is None


def test_arms_send_the_same_requests_alternately() -> None:
    server = Simulated()
    prompts = ["one", "two", "three"]
    run(
        server,
        prompts=prompts,
        concurrency=[2],
        requests=16,
        output_tokens=8,
        draft_tokens=[4],
        seed=5,
    )
    # One first request per arm and one warm-up request per arm and client come before.
    timed = server.seen[2 + 2 * 2 :]
    arms = {
        length: sorted(
            (given["random_seed"], given["text_input"].decode(), given["max_tokens"])
            for given in timed
            if given["num_draft_tokens"] == length
        )
        for length in (0, 4)
    }
    assert arms[0] == arms[4] == [(5 + n, prompts[n % 3], 8) for n in range(16)]
    assert {given["end_id"] for given in timed} == {-1}
    turns = [given["num_draft_tokens"] for given in timed[::4]]
    assert turns == [0, 4, 4, 0, 0, 4, 4, 0]


def test_server_default_length_is_requested_without_the_input() -> None:
    server = Simulated(draft_tokens=3)
    report = run(server, requests=4, output_tokens=8)
    [arm] = report.levels[0].speculative
    assert arm.draft_tokens is None
    assert len(arm.acceptance_by_position) == 3
    assert report.recommended_draft_tokens in (None, 0)


@pytest.mark.slow
def test_latencies_are_consistent() -> None:
    server = Simulated(target_seconds=0.01)
    report = run(server, requests=6, output_tokens=10, draft_tokens=[4], warmup=0)
    baseline = report.levels[0].arms[0]
    assert baseline.request_latency is not None
    assert baseline.time_to_first_token is not None
    assert baseline.inter_token_latency is not None
    assert baseline.inter_chunk_latency is not None
    assert baseline.time_to_first_token.min >= 10
    assert baseline.request_latency.avg == pytest.approx(
        baseline.time_to_first_token.avg + 9 * baseline.inter_token_latency.avg
    )
    # The baseline sends every token in a chunk of its own.
    assert baseline.inter_chunk_latency.avg == pytest.approx(baseline.inter_token_latency.avg)
    for latency in (baseline.request_latency, baseline.inter_chunk_latency):
        ordered = [latency.min, latency.p25, latency.p50, latency.p75, latency.p90, latency.p95]
        assert [*ordered, latency.p99, latency.max] == sorted([*ordered, latency.p99, latency.max])


def test_model_without_streaming_has_no_time_to_first_token() -> None:
    report = run(Simulated(decoupled=False), requests=4, output_tokens=8, draft_tokens=[4])
    [level] = report.levels
    assert not report.streamed
    assert level.arms[0].time_to_first_token is None
    assert level.speculative[0].acceptance_percent is not None
    assert level.speculative[0].acceptance_by_position == ()


def test_errors_above_the_limit_fail_the_run() -> None:
    values: dict[str, Any] = {"requests": 8, "output_tokens": 4, "warmup": 0}
    report = run(Simulated(refuse=16), **values)
    assert (report.requests, report.errors, report.failed) == (16, 2, True)
    assert report.ended == "completed"
    assert "no more of these" in str(report.levels[0].arms[0].first_error)
    assert not run(Simulated(refuse=16), error_limit_percent=20, **values).failed


def test_first_refusal_ends_the_run() -> None:
    with pytest.raises(RefusedError, match="no more of these"):
        run(Simulated(refuse=0))
    with pytest.raises(RefusedError, match="unknown model"):
        run(Simulated(), model="absent")
    with pytest.raises(BadRequestError, match="no input num_draft_tokens"):
        run(Simulated(), model="ensemble")


def test_failed_connection_is_reported() -> None:
    with pytest.raises(UnreachableError, match=r"connection to .* failed"):
        asyncio.run(measure(Connection("127.0.0.1:9"), Settings(), protocol="grpc"))


def test_results_before_a_lost_connection_are_kept() -> None:
    report = run(Simulated(stops_at=30), requests=40, output_tokens=4)
    assert report.ended == "unreachable"
    assert "connection to" in report.message
    assert report.failed
    assert report.levels[0].arms[0].request_latency is not None


def test_interrupted_run_keeps_its_measurements() -> None:
    async def interrupted(url: str) -> Report:
        halfway = asyncio.Event()

        def record(progress: Progress) -> None:
            if progress.done > progress.total / 2:
                halfway.set()

        measurement = Measurement(
            Connection(url),
            Settings(requests=40, output_tokens=4),
            on_progress=record,
            protocol="grpc",
        )
        task = asyncio.create_task(measurement.run())
        await halfway.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return measurement.report()

    with served(Simulated(target_seconds=0.001)) as url:
        report = asyncio.run(interrupted(url))
    assert report.ended == "interrupted"
    assert not report.failed
    assert 0 < report.requests < 80
    assert report.levels[0].speculative[0].speedup_percent is not None


def test_report_is_unchanged_by_its_json_form() -> None:
    report = run(Simulated(), concurrency=[1, 2], requests=4, output_tokens=8, draft_tokens=[2, 4])
    document = json.loads(json.dumps(report.as_json()))
    assert Report.from_json(document) == report
    assert document["format"] == "specdec.dev/bench/v1"
    assert [level["concurrency"] for level in document["levels"]] == [1, 2]
    with pytest.raises(ValueError, match="levels"):
        Report.from_json({**document, "levels": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompts": []}, "no prompt"),
        ({"prompts": ["a", ""]}, "empty one"),
        ({"concurrency": []}, "concurrency needs distinct values"),
        ({"concurrency": [1, 0]}, "concurrency is 0"),
        ({"draft_tokens": [0]}, "draft tokens is 0"),
        ({"draft_tokens": [4, 4]}, "draft tokens needs distinct values"),
        ({"requests": 0}, "requests is 0"),
        ({"output_tokens": 0}, "output tokens is 0"),
        ({"error_limit_percent": 101}, "error limit is 101"),
        ({"confidence_percent": 100}, "confidence is 100"),
    ],
)
def test_invalid_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        Settings(**values)
