"""Benchmark a served model in the cluster: `python -m specdec.jobs.benchmark --plan JSON`.

The operator's benchmark Job runs this program. It measures the Service with `specdec.tools.bench`,
writes the report to the volume, and returns a summary for `status.benchmark`.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.reasons import BenchmarkReason
from specdec.client.connection import Connection
from specdec.client.errors import ClientError
from specdec.client.load import Arm, Level, Progress, Report, Settings, measure
from specdec.jobs import measurement_common, result, volume
from specdec.jobs.result import JobError, progress
from specdec.servers.kind import kind

FAILED = BenchmarkReason.BENCHMARK_FAILED
_CHARACTERS = 300
Json = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if the error rate stayed within its limit."""
    parser = argparse.ArgumentParser(description="Benchmark a served model")
    parser.add_argument("--plan", required=True, help="JSON: the server and the load")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    options = parser.parse_args(arguments)
    plan: Json = json.loads(options.plan)
    return result.run(lambda: benchmark(plan, options.volume), FAILED)


def benchmark(plan: Json, root: Path) -> Json:
    """Measure, write the report below `root`, and return the fields of `status.benchmark`.

    Raises:
        JobError: ErrorRateHigh (with the summary as partial result), ServerUnreachable,
            PromptsInvalid, SecretMissing or BenchmarkFailed.
    """
    file = Path(plan["prompts"]) if "prompts" in plan else None
    texts = measurement_common.prompts(
        file, plan.get("promptsName", ""), plan["requests"], "benchmark"
    )
    other: Mapping[str, str] = plan.get("baseline", {})
    settings = Settings(
        model=plan["model"],
        baseline_model=other.get("model", plan["model"]),
        prompts=[entry.prompt for entry in texts],
        concurrency=plan["concurrency"],
        requests=plan["requests"],
        output_tokens=plan["outputTokens"],
        error_limit_percent=plan["maxErrorPercent"],
    )
    requests = kind(plan["kind"]).requests
    server = measurement_common.connection(plan["server"], plan.get("tls"), requests.path)
    baseline_requests = kind(other["kind"]).requests if other else None
    try:
        report = asyncio.run(
            measure(
                server,
                settings,
                on_progress=_ProgressLog(),
                protocol=plan.get("protocol", "grpc"),
                baseline=_connection(other) if other else None,
                requests=requests,
                baseline_requests=baseline_requests,
            )
        )
    except ClientError as error:
        raise measurement_common.job_error(error, FAILED) from error
    write(root / plan["report"], report)
    if report.ended != "completed":
        raise JobError(measurement_common.UNREACHABLE, report.message, permanent=False)
    summary = {"benchmark": _summary(report, plan)}
    if report.failed:
        raise JobError(BenchmarkReason.ERROR_RATE_HIGH, _failure(report), partial_result=summary)
    return summary


def _connection(other: Mapping[str, str]) -> Connection:
    return measurement_common.connection(other["server"], None, kind(other["kind"]).requests.path)


def write(file: Path, report: Report) -> None:
    """Write a report to the volume; the file appears complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o644)
        volume.sync(scratch)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    volume.sync(file.parent)


class _ProgressLog:
    """Logs a line for every tenth of the requests."""

    def __init__(self) -> None:
        self._logged_tenth = -1

    def __call__(self, current: Progress) -> None:
        tenth = 10 * current.done // max(1, current.total)
        if tenth > self._logged_tenth:
            self._logged_tenth = tenth
            progress("benchmark", 10 * tenth, f"{current.concurrency} clients")


def _summary(report: Report, plan: Json) -> Json:
    return {
        "planHash": plan["planHash"],
        "measuredAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "draftTokens": plan["draftTokens"],
        "message": _failure(report) if report.failed else _message(report, plan),
        "levels": [_level(level) for level in report.levels],
    }


def _message(report: Report, plan: Json) -> str:
    baseline = plan.get("baseline", {}).get("name", "the target alone")
    speeds = [
        f"{arm.speedup_percent.value:.0f} % with {level.concurrency}"
        for level in report.levels
        if (arm := level.best) is not None and arm.speedup_percent is not None
    ]
    return f"speed relative to {baseline}, by concurrent clients: {', '.join(speeds)}"


def _failure(report: Report) -> str:
    arms = [arm for level in report.levels for arm in level.arms]
    first = next((arm.first_error for arm in arms if arm.first_error), "")
    return (
        f"{report.errors} of {report.requests} requests failed, above "
        f"spec.benchmark.maxErrorPercent {report.error_limit_percent:g}: {first[:_CHARACTERS]}"
    )


def _level(level: Level) -> Json:
    (speculative,) = level.speculative
    summary: Json = {
        "concurrency": level.concurrency,
        **({"baseline": _arm(level.baseline)} if level.baseline else {}),
        "speculative": _arm(speculative),
    }
    if speculative.speedup_percent is not None:
        speed = speculative.speedup_percent
        summary["speedupPercent"] = round(speed.value)
        summary["speedupInterval"] = f"{speed.low:.0f}-{speed.high:.0f}"
    if speculative.acceptance_percent is not None:
        summary["acceptancePercent"] = round(speculative.acceptance_percent)
    if speculative.tokens_per_round is not None:
        summary["tokensPerRound"] = f"{speculative.tokens_per_round:.2f}"
    return summary


def _arm(arm: Arm) -> Json:
    summary: Json = {
        "requests": arm.requests,
        "errors": arm.errors,
        "tokensPerSecond": f"{arm.output_token_throughput:.1f}",
    }
    if arm.request_latency is not None:
        summary["latencyP50Ms"] = f"{arm.request_latency.p50:.1f}"
    if arm.time_to_first_token is not None:
        summary["firstTokenP50Ms"] = f"{arm.time_to_first_token.p50:.1f}"
    return summary


if __name__ == "__main__":
    sys.exit(main())
