"""A report for the terminal."""

from collections.abc import Iterator

from rich import box
from rich.table import Table

from specdec.bench.export import length
from specdec.bench.report import Arm, Latency, Report

_HEADS = (
    "at\nonce",
    "draft\ntokens",
    "tokens\n/s",
    "p50\nms",
    "p99\nms",
    "first\nms",
    "token\nms",
    "accep-\nted %",
    "tokens\n/round",
    "speed\n%",
    "inter-\nval",
)


def table(report: Report) -> Table:
    """One line an arm; latencies of whole requests, medians where a column has one number.

    Narrow enough for 80 columns.
    """
    found = Table(*_HEADS, box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in found.columns:
        column.justify = "right"
        column.no_wrap = True
    for level in report.levels:
        for arm in level.arms:
            found.add_row(*_row(level.concurrency, arm), end_section=arm is level.arms[-1])
    return found


def sentences(report: Report) -> Iterator[str]:
    """What the numbers come to, worst news last."""
    for level in report.levels:
        best = level.best
        if best is not None and best.speedup_percent is not None:
            speed = best.speedup_percent
            verdict = "faster" if speed.low > 100 else "slower" if speed.high < 100 else ""
            yield (
                f"{level.concurrency} at once: {speed.value / 100:.2f} times the baseline's speed "
                f"({speed.low / 100:.2f} to {speed.high / 100:.2f} with "
                f"{report.confidence_percent:g} % confidence"
                + (f", {verdict})" if verdict else ", which may be chance)")
            )
    if report.recommended_draft_tokens is not None:
        advice = "switch speculation off" if not report.recommended_draft_tokens else ""
        yield f"recommended draft tokens: {report.recommended_draft_tokens} {advice}".rstrip()
    for arm in (arm for level in report.levels for arm in level.arms):
        if arm.first_error is not None:
            yield f"{arm.errors} of {arm.requests} requests failed: {arm.first_error}"
            break
    if report.ended != "completed":
        yield f"{report.message}; the numbers are of what was measured before"


def _row(concurrency: int, arm: Arm) -> Iterator[str]:
    speed = arm.speedup_percent
    yield str(concurrency)
    yield "off" if arm.draft_tokens == 0 else length(arm)
    yield f"{arm.output_token_throughput:.1f}"
    yield _milliseconds(arm.request_latency, "p50")
    yield _milliseconds(arm.request_latency, "p99")
    yield _milliseconds(arm.time_to_first_token, "p50")
    yield _milliseconds(arm.inter_token_latency, "p50")
    yield "" if arm.acceptance_percent is None else f"{arm.acceptance_percent:.0f}"
    yield "" if arm.tokens_per_round is None else f"{arm.tokens_per_round:.2f}"
    yield "" if speed is None else f"{speed.value:.0f}"
    yield "" if speed is None else f"{speed.low:.0f}-{speed.high:.0f}"


def _milliseconds(latency: Latency | None, statistic: str) -> str:
    return "" if latency is None else f"{getattr(latency, statistic):.1f}"
