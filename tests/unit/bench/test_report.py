"""The exports of a report: table, CSV, and a page that a browser renders."""

import csv
import io
import re
import subprocess
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from specdec import __version__
from specdec.client.load import Report
from specdec.tools.bench.export import as_csv
from specdec.tools.bench.html import as_html
from specdec.tools.bench.table import sentences, table
from unit.bench.fixed import arm, report

PLOTS = ("latency", "throughput", "speedup", "acceptance")


def test_csv_has_the_names_of_genai_perf() -> None:
    first, second = as_csv(report()).replace("\r\n", "\n").split("\n\n")
    distributions = list(csv.DictReader(io.StringIO(first)))
    statistics = ["avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25"]
    assert list(distributions[0])[2:] == ["Metric", *statistics]
    assert [row["Metric"] for row in distributions[:4]] == [
        "Time To First Token (ms)",
        "Inter Token Latency (ms)",
        "Inter Chunk Latency (ms)",
        "Request Latency (ms)",
    ]
    assert (distributions[3]["avg"], distributions[3]["p99"]) == ("1000.000", "3000.000")
    values = {
        (row["Concurrency"], row["Draft Tokens"], row["Metric"]): row["Value"]
        for row in csv.DictReader(io.StringIO(second))
    }
    assert values["16", "4", "Speedup (percent)"] == "200.000"
    assert values["1", "0", "Speedup (percent)"] == ""
    assert values["1", "0", "Output Token Throughput (per sec)"] == "240.000"
    assert values["1", "0", "Request Count (count)"] == "24.000"


def test_table_fits_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table(report()))
    text = console.export_text()
    assert "…" not in text
    assert "2.00x 1.80-2.40" in text
    assert len(re.findall(r" off ", text)) == 3


def test_sentences_state_the_conclusions() -> None:
    lines = list(sentences(report()))
    assert lines[0] == (
        "concurrency 1: 2.00 times the baseline's speed "
        "(1.80 to 2.40 with 95 % confidence, faster)"
    )
    assert lines[-1] == "recommended draft tokens: 4"
    slow = report(recommended_draft_tokens=0, ended="unreachable", message="connection failed")
    assert list(sentences(slow))[-2:] == [
        "recommended draft tokens: 0 (disable speculation)",
        "connection failed; the numbers cover the requests before that",
    ]


@cache
def whole_page() -> str:
    """Return the page of the report; matplotlib draws its plots once for all tests."""
    return as_html(report())


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, tag: str, **attributes: str) -> int:
        return sum(
            name == tag and all(given.get(key) == value for key, value in attributes.items())
            for name, given in self.tags
        )


@pytest.mark.slow
def test_page_is_self_contained_and_accessible() -> None:
    page = Page(whole_page())
    assert page.count("script") == page.count("link") == page.count("img") == 0
    addresses = {
        value
        for _, given in page.tags
        for key, value in given.items()
        if key in {"src", "href", "xlink:href"}
    }
    assert {value for value in addresses if not str(value).startswith("#")} == set()
    assert page.count("meta", name="viewport", content="width=device-width, initial-scale=1") == 1
    assert page.count("html", lang="en") == 1
    assert page.count("svg", role="img") == len(PLOTS)
    assert page.count("table") == page.count("caption") == page.count("div", role="region")
    assert page.count("th", scope="row") == 5 * 9


@pytest.mark.slow
def test_server_messages_are_escaped() -> None:
    bad = arm(0, 1.0, errors=1, first_error="<script>alert(1)</script>")
    level = report().levels[0]
    hostile = report(
        model="<b>",
        failed=True,
        error_percent=2.0,
        levels=(type(level)(1, bad, level.speculative, 4),),
    )
    text = as_html(hostile)
    assert "<script" not in text
    assert "<b>" not in text
    assert "This run failed: 2.0 %" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"levels": ()},
        {"levels": (report().levels[0],)},
        {"streamed": False},
        {"ended": "interrupted", "message": "the run was interrupted"},
    ],
)
def test_partial_report_becomes_a_page(changed: dict[str, Any]) -> None:
    assert as_html(report(**changed)).count("<figure") == (4 if report(**changed).levels else 0)


@pytest.mark.slow
def test_without_positions_acceptance_is_drawn_by_length() -> None:
    level = report().levels[0]
    whole = tuple(arm(length, 500.0, acceptance_by_position=()) for length in (2, 4))
    text = as_html(report(levels=(type(level)(1, level.arms[0], whole, 4),)))
    assert "by draft length" in text
    assert "the answers do not show single rounds" in text


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_draws_every_plot(browser: str, tmp_path: Path, width: int) -> None:
    pixels = screenshot(browser, tmp_path, width)
    for number, name in enumerate(PLOTS):
        rows, columns = np.nonzero((pixels == border(number)).all(axis=2))
        assert rows.size, f"the figure {name} is not on the page"
        # A figure wider than the screen would lose its right edge.
        assert columns.max() < width - 8
        assert columns.max() - columns.min() > min(width - 50, 400)
        inside = pixels[rows.min() : rows.max(), columns.min() + 2 : columns.max() - 1].astype(int)
        coloured = np.ptp(inside, axis=2) > 60
        assert coloured.sum() > 500, f"the plot {name} is empty"
        # The drawing covers more than half of the width.
        assert np.ptp(np.nonzero(coloured)[1]) > inside.shape[1] / 2


def screenshot(browser: str, folder: Path, width: int) -> NDArray[np.uint8]:
    """Return the page's pixels, with a border of a different colour around every figure."""
    rules = "".join(
        f"figure#{name} {{ border-color: rgb({','.join(map(str, border(number)))}) }}"
        for number, name in enumerate(PLOTS)
    )
    page, picture = folder / "report.html", folder / "report.png"
    page.write_text(whole_page().replace("</style>", f"{rules}</style>"), "utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},2400",
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_SECONDS)
    with Image.open(picture) as image:
        return np.asarray(image.convert("RGB"))


def border(number: int) -> tuple[int, int, int]:
    return (250, 1 + number, 250)


def many_arms(count: int) -> Report:
    """Return a report with this many draft lengths."""
    (level, *_) = report().levels
    arms = tuple(arm(length, 900.0 - 20 * length) for length in range(1, count + 1))
    return report(levels=(replace(level, speculative=arms),))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 11])
def test_every_arm_has_a_mark_of_its_own(count: int) -> None:
    from specdec.tools.bench.plots import plots

    for plot in plots(many_arms(count)):
        shapes = dict(re.findall(r'<path id="(m\w+)" d="([^"]*)"', plot.svg))
        used = {shapes[mark] for mark in re.findall(r'<use xlink:href="#(m\w+)"', plot.svg)}
        baseline = plot.name in ("latency", "throughput")
        # Further shapes are the caps of the whiskers and the ticks of the two axes.
        caps = plot.name == "speedup"
        assert len(used) >= count + baseline + caps + 2, plot.name


@pytest.mark.slow
def test_speed_has_a_line_at_the_baseline() -> None:
    from specdec.tools.bench.plots import plots

    (speed,) = [plot for plot in plots(report()) if plot.name == "speedup"]
    line = r'<path d="M (\S+) (\S+)\s+L (\S+) (\S+)[^>]*?fill: none; stroke: (#\w+)'
    paths = re.findall(line, speed.svg)
    assert len(paths) > 4
    grid = [float(top) for _, top, _, _, colour in paths if colour == "#dddddd"]
    labels = re.findall(r">([\d.]+)</text>", speed.svg)[len(report().levels) :]
    heights = dict(zip(map(float, labels), grid, strict=True))
    widths = {float(right) - float(left) for left, _, right, _, c in paths if c == "#dddddd"}
    assert (heights[1.0], widths) in [
        (float(top), {float(right) - float(left)})
        for left, top, right, _, colour in paths
        if colour == "#555555"
    ]


@pytest.mark.slow
def test_page_begins_with_what_was_measured() -> None:
    facts = {
        "Target": "big/model",
        "Draft": "small/model",
        "GPUs of a pod": "2 x H200",
        "Image": "registry.example/server:1",
    }
    top, _, _ = as_html(report(subject=facts)).partition("</header>")
    shown = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", top))
    date = {"Date": f"2026-01-02T03:04:05Z, by specdec {__version__}"}
    assert shown == facts | date


@pytest.mark.slow
def test_equal_reports_are_equal_pages_without_repeated_ids() -> None:
    text = whole_page()
    assert text == as_html(report())
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_energy_has_a_column_only_where_it_was_measured() -> None:
    assert "J per token" in whole_page()
    arms = tuple(arm(length, 500.0, energy_joules=None) for length in (0, 4))
    level = type(report().levels[0])(1, arms[0], arms[1:], 4)
    assert "J per token" not in as_html(report(levels=(level,)))
