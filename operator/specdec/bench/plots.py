"""The plots of a report, as SVG by pygal: no script, no address, no font from elsewhere."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import Style

from specdec.bench.export import length
from specdec.bench.report import Arm, Report

# pygal's finder of map plugins speaks a protocol that Python warns of; there are no maps here.
sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, pygal.PluginImportFixer)]

# Told apart without colour vision too (Okabe & Ito, 2008).
_COLOURS = ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_LEGEND = 40
_FONT = "system-ui, sans-serif"
_SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Plot:
    """One figure.

    Attributes:
        name: for anchors, lower case.
        title: what is shown, with the unit.
        note: how to read it.
        svg: an element to put into a page.
    """

    name: str
    title: str
    note: str
    svg: str


def plots(report: Report) -> list[Plot]:
    """What there is to draw; nothing about acceptance where nobody speculated."""
    drawn = [_latency(report), _throughput(report), _speedup(report), _positions(report)]
    return [plot for plot in drawn if plot is not None]


def _latency(report: Report) -> Plot | None:
    series = {
        f"{_name(arms[0])}, {statistic}": [
            getattr(arm.request_latency, statistic) if arm.request_latency else None
            for arm in arms
        ]
        for arms in _by_arm(report)
        for statistic in ("p50", "p99")
    }
    note = "Until an answer's last token: median, and dashed what one in a hundred exceeds (p99)."
    colours = tuple(colour for colour in _COLOURS for _ in range(2))
    title = "Request latency in ms, by clients at once"
    return _lines("latency", title, note, report, series, colours)


def _throughput(report: Report) -> Plot | None:
    series = {
        _name(arms[0]): [arm.output_token_throughput for arm in arms] for arms in _by_arm(report)
    }
    title = "Output tokens a second, by clients at once"
    return _lines("throughput", title, "All clients together.", report, series, _COLOURS)


def _lines(
    name: str,
    title: str,
    note: str,
    report: Report,
    series: Mapping[str, Sequence[float | None]],
    colours: tuple[str, ...],
) -> Plot | None:
    if not report.levels:
        return None
    chart = pygal.Line(_config(series, dots_size=4), style=_style(colours))
    chart.x_labels = [str(level.concurrency) for level in report.levels]
    for label, values in series.items():
        dashes = {"dasharray": "5, 4"} if label.endswith("p99") else {}
        chart.add(label, values, stroke_style={"width": 2, **dashes})
    return Plot(name, title, note, _svg(chart, title))


def _speedup(report: Report) -> Plot | None:
    title = "Speed in percent of the baseline, by clients at once"
    levels = [level for level in report.levels if level.best is not None]
    if not levels:
        return None
    intervals = [arm.speedup_percent for level in levels for arm in level.speculative]
    # Room for the whiskers, which pygal does not reckon with.
    top = 1.05 * max(one.high for one in intervals if one is not None)
    names = [_name(arm) for arm in levels[0].speculative]
    config = _config(names, range=(0, max(100, top)))
    chart = pygal.Bar(config, style=_style(_COLOURS[1:]))
    chart.x_labels = [str(level.concurrency) for level in levels]
    for arms in zip(*(level.speculative for level in levels), strict=True):
        chart.add(_name(arms[0]), [_with_interval(arm) for arm in arms])
    note = (
        "100 is as fast as without speculation. Whiskers are the "
        f"{report.confidence_percent:g} % confidence interval."
    )
    return Plot("speedup", title, note, _svg(chart, title))


def _with_interval(arm: Arm) -> Any:
    speed = arm.speedup_percent
    if speed is None:
        return None
    return {"value": speed.value, "ci": {"low": speed.low, "high": speed.high}}


def _positions(report: Report) -> Plot | None:
    """Of the first level: what the draft guesses right does not hang on the load."""
    if not report.levels:
        return None
    arms = [arm for arm in report.levels[0].speculative if arm.acceptance_by_position]
    if not arms:
        return _acceptance(report)
    title = "Accepted draft tokens in percent, by position in the round"
    chart = pygal.Line(
        _config([_name(arm) for arm in arms], dots_size=4, range=(0, 100)),
        style=_style(_COLOURS[1:]),
    )
    longest = max(len(arm.acceptance_by_position) for arm in arms)
    chart.x_labels = [str(position) for position in range(1, longest + 1)]
    for arm in arms:
        chart.add(_name(arm), list(arm.acceptance_by_position), stroke_style={"width": 2})
    note = (
        "Share of the rounds whose draft was right up to this token. "
        f"Measured at {report.levels[0].concurrency} at once."
    )
    return Plot("acceptance", title, note, _svg(chart, title))


def _acceptance(report: Report) -> Plot | None:
    """By draft length, where answers came whole and no round could be told from another."""
    arms = [arm for arm in report.levels[0].speculative if arm.acceptance_percent is not None]
    if not arms:
        return None
    title = "Accepted draft tokens in percent, by draft length"
    config = _config((), range=(0, 100), show_legend=False)
    chart = pygal.Bar(config, style=_style(_COLOURS[1:]))
    chart.x_labels = [length(arm) for arm in arms]
    chart.add("accepted", [arm.acceptance_percent for arm in arms])
    note = "By position is not known: this model answers once, so that rounds are not told apart."
    return Plot("acceptance", title, note, _svg(chart, title))


def _by_arm(report: Report) -> list[tuple[Arm, ...]]:
    """Every arm across the levels."""
    return list(zip(*(level.arms for level in report.levels), strict=True))


def _name(arm: Arm) -> str:
    if arm.draft_tokens == 0:
        return "baseline"
    return "speculative" if arm.draft_tokens is None else f"draft {arm.draft_tokens}"


def _config(names: Collection[str], **values: Any) -> Any:
    """Settings of a chart whose legend has these names."""
    widest = max(map(len, names), default=0)
    # Sized for a phone's width: wider screens put several side by side instead of drawing larger.
    return pygal.Config(
        js=[],
        width=460,
        height=330,
        legend_at_bottom=True,
        # pygal leaves no room for a row that is not full, nor for long names.
        legend_at_bottom_columns=next(
            n for n in (4, 3, 2, 1) if (len(names) % n == 0 and n * widest <= _LEGEND) or n == 1
        ),
        truncate_legend=-1,
        max_scale=8,
        legend_box_size=12,
        margin=8,
        show_minor_x_labels=True,
        value_formatter=lambda value: f"{value:,.4g}",
        include_x_axis=True,
        pretty_print=False,
        disable_xml_declaration=True,
        no_data_text="nothing was measured",
        **values,
    )


def _style(colours: tuple[str, ...]) -> Any:
    """Colours stay with their arms; without the baseline its own is left out."""
    return Style(
        background="#ffffff",
        plot_background="#ffffff",
        foreground="#222222",
        foreground_strong="#000000",
        foreground_subtle="#666666",
        colors=colours,
        font_family=_FONT,
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=13,
        tooltip_font_size=13,
        no_data_font_size=15,
        opacity=".85",
        transition="0s",
    )


def _svg(chart: Any, title: str) -> str:
    """The drawing without pygal's script, named for who cannot see it."""
    root = ElementTree.fromstring(chart.render())  # noqa: S314 - pygal's own output
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}script":
                parent.remove(child)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("width", "100%")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")
