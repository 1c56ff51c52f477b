"""Draw the plots of a report as SVG with pygal, without scripts, links or external fonts.

`html` puts them into its page.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import Style

from specdec.bench.export import length
from specdec.bench.report import Arm, Report

# pygal's finder for map plugins uses a deprecated import protocol; this module needs no maps.
sys.meta_path[:] = [
    finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)
]

# Colours that are distinguishable with colour blindness (Okabe & Ito, 2008).
_COLOURS = ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_LEGEND = 40
_FONT = "system-ui, sans-serif"
_SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Plot:
    """One figure.

    Attributes:
        name: anchor in the page, lower case.
        title: quantity and unit.
        note: explanation for the reader.
        svg: the SVG element.
    """

    name: str
    title: str
    note: str
    svg: str


def plots(report: Report) -> list[Plot]:
    """The plots for the values that the report has."""
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
    note = "Time to the last token of an answer: median, and dashed the 99th percentile (p99)."
    colours = tuple(colour for colour in _COLOURS for _ in range(2))
    title = "Request latency in ms, by concurrent clients"
    return _lines("latency", title, note, report, series, colours)


def _throughput(report: Report) -> Plot | None:
    series = {
        _name(arms[0]): [arm.output_token_throughput for arm in arms] for arms in _by_arm(report)
    }
    title = "Output tokens per second, by concurrent clients"
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
    title = "Speed in percent of the baseline, by concurrent clients"
    levels = [level for level in report.levels if level.best is not None]
    if not levels:
        return None
    intervals = [arm.speedup_percent for level in levels for arm in level.speculative]
    # pygal does not include the whiskers in the range of the axis.
    top = 1.05 * max(interval.high for interval in intervals if interval is not None)
    names = [_name(arm) for arm in levels[0].speculative]
    config = _config(names, range=(0, max(100, top)))
    chart = pygal.Bar(config, style=_style(_COLOURS[1:]))
    chart.x_labels = [str(level.concurrency) for level in levels]
    for arms in zip(*(level.speculative for level in levels), strict=True):
        chart.add(_name(arms[0]), [_with_interval(arm) for arm in arms])
    note = (
        "100 is the speed without speculation. Whiskers are the "
        f"{report.confidence_percent:g} % confidence interval."
    )
    return Plot("speedup", title, note, _svg(chart, title))


def _with_interval(arm: Arm) -> Any:
    speed = arm.speedup_percent
    if speed is None:
        return None
    return {"value": speed.value, "ci": {"low": speed.low, "high": speed.high}}


def _positions(report: Report) -> Plot | None:
    """Acceptance by position at the first level, because it does not depend on the load."""
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
        "Share of the rounds whose draft was accepted up to this token. "
        f"Measured with concurrency {report.levels[0].concurrency}."
    )
    return Plot("acceptance", title, note, _svg(chart, title))


def _acceptance(report: Report) -> Plot | None:
    """Acceptance by draft length, for answers in one piece, which do not show single rounds."""
    arms = [arm for arm in report.levels[0].speculative if arm.acceptance_percent is not None]
    if not arms:
        return None
    title = "Accepted draft tokens in percent, by draft length"
    config = _config((), range=(0, 100), show_legend=False)
    chart = pygal.Bar(config, style=_style(_COLOURS[1:]))
    chart.x_labels = [length(arm) for arm in arms]
    chart.add("accepted", [arm.acceptance_percent for arm in arms])
    note = "Acceptance by position is unknown: this model answers in one piece, without rounds."
    return Plot("acceptance", title, note, _svg(chart, title))


def _by_arm(report: Report) -> list[tuple[Arm, ...]]:
    """The results of each arm over all levels."""
    return list(zip(*(level.arms for level in report.levels), strict=True))


def _name(arm: Arm) -> str:
    if arm.draft_tokens == 0:
        return "baseline"
    return "speculative" if arm.draft_tokens is None else f"draft {arm.draft_tokens}"


def _config(names: Collection[str], **values: Any) -> Any:
    """The settings of a chart with these names in its legend."""
    widest = max(map(len, names), default=0)
    # Sized for the width of a phone; wider screens show several charts side by side.
    return pygal.Config(
        js=[],
        width=460,
        height=330,
        legend_at_bottom=True,
        # pygal reserves no space for an incomplete row, or for long names.
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
    """The style with the given colours, so that an arm has the same colour in all charts."""
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
    """The SVG element without pygal's script, with a label for screen readers."""
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
