"""Draw the plots of a report as SVG with matplotlib, without scripts, links or external fonts.

`html` puts them into its page. Each arm has the same colour, mark and line in all plots.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from specdec.client.load.report import Arm, Report
from specdec.tools.bench.export import length

# Colours that are distinguishable with colour blindness (Okabe & Ito, 2008), and marks that are
# distinguishable without any colour. The number of colours and the number of marks have no common
# factor, so that 66 arms differ.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKS = ("s", "^", "D", "v", "P", "X", "<", "p", ">", "*", "h")
_BASELINE = {"color": "#555555", "marker": "o"}
# Inches: the width of a phone; wider screens show several plots side by side.
_SIZE = (4.6, 3.3)
_SETTINGS: dict[Any, Any] = {
    # Text stays text, in a font of the reader's system.
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "legend.frameon": False,
}
_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
# Share of the distance between two levels over which the marks of their arms are spread.
_SPREAD = 0.5


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
    if not report.levels:
        return []
    with mpl.rc_context(_SETTINGS):
        drawn = [_latency(report), _throughput(report), _speedup(report), _positions(report)]
    return [plot for plot in drawn if plot is not None]


def _latency(report: Report) -> Plot:
    figure, axes = _figure()
    for number, arms in enumerate(_by_arm(report)):
        for statistic, line in (("p50", "-"), ("p99", "--")):
            values = [
                getattr(arm.request_latency, statistic) if arm.request_latency else None
                for arm in arms
            ]
            label = _name(arms[0]) if statistic == "p50" else None
            _line(axes, number, values, linestyle=line, label=label)
    _levels(axes, report)
    note = "Time to the last token of an answer: median, and dashed the 99th percentile (p99)."
    return _plot("latency", "Request latency in ms, by concurrent clients", note, figure)


def _throughput(report: Report) -> Plot:
    figure, axes = _figure()
    for number, arms in enumerate(_by_arm(report)):
        values = [arm.output_token_throughput for arm in arms]
        _line(axes, number, values, label=_name(arms[0]))
    _levels(axes, report)
    title = "Output tokens per second, by concurrent clients"
    return _plot("throughput", title, "All clients together.", figure)


def _speedup(report: Report) -> Plot | None:
    levels = [level for level in report.levels if level.best is not None]
    if not levels:
        return None
    figure, axes = _figure()
    axes.axhline(1.0, color=_BASELINE["color"], linewidth=1.5, label="baseline", zorder=1.9)
    series = list(zip(*(level.speculative for level in levels), strict=True))
    for number, arms in enumerate(series, 1):
        shift = _SPREAD * (number / (len(series) + 1) - 0.5)
        for place, arm in enumerate(arms):
            speed = arm.speedup_percent
            if speed is not None:
                low, high = (abs(bound - speed.value) for bound in (speed.low, speed.high))
                axes.errorbar(
                    place + shift,
                    speed.value / 100,
                    yerr=[[low / 100], [high / 100]],
                    capsize=4,
                    **_style(number),
                    label=None if place else _name(arm),
                )
    axes.set_xlim(-0.5, len(levels) - 0.5)
    _ticks(axes, [str(level.concurrency) for level in levels])
    note = (
        "The line at 1.0 is the speed without speculation. Whiskers are the "
        f"{report.confidence_percent:g} % confidence interval."
    )
    title = "Speed compared with the baseline, by concurrent clients"
    return _plot("speedup", title, note, figure)


def _positions(report: Report) -> Plot | None:
    """Acceptance by position at the first level, because it does not depend on the load."""
    arms = list(enumerate(report.levels[0].speculative, 1))
    shown = [(number, arm) for number, arm in arms if arm.acceptance_by_position]
    if not shown:
        return _acceptance(report)
    figure, axes = _figure()
    for number, arm in shown:
        places = range(1, len(arm.acceptance_by_position) + 1)
        axes.plot(places, arm.acceptance_by_position, **_style(number), label=_name(arm))
    axes.set_xticks(range(1, max(len(arm.acceptance_by_position) for _, arm in shown) + 1))
    axes.set_ylim(0, 100)
    note = (
        "Share of the rounds whose draft was accepted up to this token. "
        f"Measured with concurrency {report.levels[0].concurrency}."
    )
    title = "Accepted draft tokens in percent, by position in the round"
    return _plot("acceptance", title, note, figure)


def _acceptance(report: Report) -> Plot | None:
    """Acceptance by draft length, for answers that do not show the counts of single rounds."""
    arms = [arm for arm in report.levels[0].speculative if arm.acceptance_percent is not None]
    if not arms:
        return None
    figure, axes = _figure()
    shares = [arm.acceptance_percent or 0.0 for arm in arms]
    axes.bar(
        range(len(arms)),
        shares,
        color=[_style(number)["color"] for number, _ in enumerate(arms, 1)],
    )
    _ticks(axes, [length(arm) for arm in arms])
    axes.set_ylim(0, 100)
    note = "Acceptance by position is unknown: the answers do not show single rounds."
    title = "Accepted draft tokens in percent, by draft length"
    return _plot("acceptance", title, note, figure)


def _by_arm(report: Report) -> list[tuple[Arm, ...]]:
    """The results of each arm over all levels."""
    return list(zip(*(level.arms for level in report.levels), strict=True))


def _name(arm: Arm) -> str:
    if arm.draft_tokens == 0:
        return "baseline"
    return "speculative" if arm.draft_tokens is None else f"draft {arm.draft_tokens}"


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, figure.add_subplot()


def _line(axes: Axes, number: int, values: Sequence[float | None], **options: Any) -> None:
    """One arm over all levels; a value that was not measured leaves a gap."""
    heights = [float("nan") if value is None else value for value in values]
    axes.plot(range(len(values)), heights, **{**_style(number), **options})


def _style(number: int) -> dict[str, Any]:
    """Colour and mark of an arm; 0 is the baseline."""
    style = _BASELINE
    if number:
        place = number - 1
        style = {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKS[place % len(_MARKS)]}
    return {**style, "linewidth": 1.8, "markersize": 6}


def _levels(axes: Axes, report: Report) -> None:
    _ticks(axes, [str(level.concurrency) for level in report.levels])


def _ticks(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_xticks(range(len(labels)), labels)


def _plot(name: str, title: str, note: str, figure: Figure) -> Plot:
    (axes,) = figure.axes
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside lower center", ncols=3)
    return Plot(name, title, note, _svg(figure, name, title))


def _svg(figure: Figure, name: str, title: str) -> str:
    """The SVG element, with a label for screen readers and no id that another plot has too."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        # Without the date, so that equal reports are equal files.
        figure.savefig(text, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(text.getvalue())  # noqa: S314 - matplotlib's own output
    used = {
        part for node in root.iter() for value in node.attrib.values() for part in _targets(value)
    }
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}metadata":
                parent.remove(child)
        if parent.get("id") not in used:
            parent.attrib.pop("id", None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("width", "100%")
    root.attrib.pop("height", None)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _targets(value: str) -> list[str]:
    """The ids that an attribute names, as `#id` or `url(#id)`."""
    if not value.startswith(("#", "url(#")):
        return []
    return [value.removeprefix("url(").removeprefix("#").rstrip(")")]
