"""Export a report as CSV, with the column and metric names of genai-perf.

`specdec bench --csv` calls `as_csv`. The tables and the HTML page use `length` to print draft
lengths.
"""

import csv
import io
from collections.abc import Iterator

from specdec.client.load.report import Arm, Latency, Report

# genai-perf writes one file per load. Here the first two columns identify the load.
_KEYS = ("Concurrency", "Draft Tokens")
_STATISTICS = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25")


def as_csv(report: Report) -> str:
    """Two blocks with a blank line between them, like genai-perf: distributions, then values.

    The draft length is `default` if the server selected it. Values that were not measured are
    empty.
    """
    text = io.StringIO()
    rows = csv.writer(text)
    arms = [(level.concurrency, arm) for level in report.levels for arm in level.arms]
    rows.writerow((*_KEYS, "Metric", *_STATISTICS))
    for concurrency, arm in arms:
        for name, latency in _distributions(arm):
            values = [f"{getattr(latency, item):.3f}" for item in _STATISTICS] if latency else ()
            rows.writerow((concurrency, length(arm), name, *values))
    rows.writerow(())
    rows.writerow((*_KEYS, "Metric", "Value"))
    for concurrency, arm in arms:
        for name, value in _values(arm):
            text_value = "" if value is None else f"{value:.3f}"
            rows.writerow((concurrency, length(arm), name, text_value))
    return text.getvalue()


def length(arm: Arm) -> str:
    """The draft length of an arm as text."""
    return "default" if arm.draft_tokens is None else str(arm.draft_tokens)


def _distributions(arm: Arm) -> Iterator[tuple[str, Latency | None]]:
    yield "Time To First Token (ms)", arm.time_to_first_token
    yield "Inter Token Latency (ms)", arm.inter_token_latency
    yield "Inter Chunk Latency (ms)", arm.inter_chunk_latency
    yield "Request Latency (ms)", arm.request_latency


def _values(arm: Arm) -> Iterator[tuple[str, float | None]]:
    speedup = arm.speedup_percent
    yield "Output Token Throughput (per sec)", arm.output_token_throughput
    yield "Request Throughput (per sec)", arm.request_throughput
    yield "Request Count (count)", arm.requests - arm.errors
    yield "Error Count (count)", arm.errors
    yield "Acceptance (percent)", arm.acceptance_percent
    yield "Tokens Per Round (tokens)", arm.tokens_per_round
    yield "Speedup (percent)", speedup.value if speedup else None
    yield "Speedup Low (percent)", speedup.low if speedup else None
    yield "Speedup High (percent)", speedup.high if speedup else None
    yield "Energy Consumption (joules)", arm.energy_joules
