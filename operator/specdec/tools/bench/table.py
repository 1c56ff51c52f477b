"""Print a report in the terminal: a table of all arms, and sentences with the conclusions.

`specdec bench` calls `table` and `sentences`; the HTML page uses the same sentences.
"""

from collections.abc import Iterator

from rich import box
from rich.table import Table

from specdec.client.load.report import Arm, Latency, Report
from specdec.tools.bench.export import length

_HEADS = (
    "cli-\nents",
    "draft\ntokens",
    "tokens\n/s",
    "p50\nms",
    "p99\nms",
    "first\nms",
    "token\nms",
    "accep-\nted %",
    "tokens\n/round",
    "speed",
    "inter-\nval",
)


def table(report: Report) -> Table:
    """One row per arm, at most 80 characters wide; `first` and `token` show medians."""
    table_ = Table(*_HEADS, box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in table_.columns:
        column.justify = "right"
        column.no_wrap = True
    for level in report.levels:
        for arm in level.arms:
            table_.add_row(*_row(level.concurrency, arm), end_section=arm is level.arms[-1])
    return table_


def sentences(report: Report) -> Iterator[str]:
    """The conclusions of the report; errors come last."""
    if report.baseline_url is not None:
        yield f"baseline: {report.baseline_model} at {report.baseline_url}"
    elif any(level.baseline is None for level in report.levels):
        yield "no baseline was measured, so no speed-up is known; compare with --baseline-url"
    for level in report.levels:
        best = level.best
        if best is not None and best.speedup_percent is not None:
            speed = best.speedup_percent
            verdict = "faster" if speed.low > 100 else "slower" if speed.high < 100 else ""
            yield (
                f"concurrency {level.concurrency}: "
                f"{speed.value / 100:.2f} times the baseline's speed "
                f"({speed.low / 100:.2f} to {speed.high / 100:.2f} with "
                f"{report.confidence_percent:g} % confidence"
                + (f", {verdict})" if verdict else ", which may be chance)")
            )
    if report.recommended_draft_tokens is not None:
        advice = "" if report.recommended_draft_tokens else " (disable speculation)"
        yield f"recommended draft tokens: {report.recommended_draft_tokens}{advice}"
    elif report.undecided_draft_tokens:
        yield (
            f"no recommendation: no difference was measured between {_arms(report)}; "
            "raise --requests"
        )
    for arm in (arm for level in report.levels for arm in level.arms):
        if arm.first_error is not None:
            yield f"{arm.errors} of {arm.requests} requests failed: {arm.first_error}"
            break
    if report.ended != "completed":
        yield f"{report.message}; the numbers cover the requests before that"


def _arms(report: Report) -> str:
    """The arms without a measured difference, as a list."""
    names = {None: "speculation", 0: "no speculation"}
    arms = [names.get(n, f"{n} draft tokens") for n in report.undecided_draft_tokens]
    return f"{', '.join(arms[:-1])} and {arms[-1]}"


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
    yield "" if speed is None else f"{speed.value / 100:.2f}x"
    yield "" if speed is None else f"{speed.low / 100:.2f}-{speed.high / 100:.2f}"


def _milliseconds(latency: Latency | None, statistic: str) -> str:
    return "" if latency is None else f"{getattr(latency, statistic):.1f}"
