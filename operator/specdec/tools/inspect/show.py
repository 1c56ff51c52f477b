"""Display the rows of `specdec top`: a live table, a table per interval, or JSON lines.

The command creates one `Display` and passes it the rows of each read.
"""

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specdec.tools.inspect.top import FORMAT, Row
from specdec.tools.terminal import fits, grid, plain, row, screen

# The heads of a figure's column in two lines, its name, and its format.
_FIGURES = (
    ("accep-\nted %", "acceptance_percent", "{:.1f}"),
    ("tokens\n/round", "tokens_per_round", "{:.2f}"),
    ("draft\nlen", "draft_length", "{:.0f}"),
    ("in\nflight", "in_flight", "{:.0f}"),
    ("wait-\ning", "waiting", "{:.0f}"),
    ("reqs\n/s", "requests_per_second", "{:.1f}"),
    ("tokens\n/s", "tokens_per_second", "{:.0f}"),
    ("fall-\nback", "fallbacks", "{:.0f}"),
    ("KV\n%", "kv_percent", "{:.0f}"),
)
# The order in which figures are left out where a terminal has no room for all.
_LEFT_OUT_FIRST = (
    *("fallbacks", "draft_length", "kv_percent", "waiting", "requests_per_second"),
    *("in_flight", "tokens_per_second", "tokens_per_round"),
)
_INDENT, _GAP = 2, 2


class Display:
    """Where rows are displayed; a context manager.

    A terminal gets one table that changes. A file or a pipe gets a table or a JSON line per read.
    """

    def __init__(self, *, as_json: bool, once: bool) -> None:
        self._json = as_json
        self._interval_start = time.monotonic()
        self._console = screen()
        live = self._console.is_terminal and not as_json and not once
        # Refreshed only with new rows, not by a thread.
        self._live = Live(console=self._console, auto_refresh=False) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def first(self, rows: Sequence[Row]) -> None:
        """Show the first rows, which have gauges only."""
        self._interval_start = time.monotonic()
        if self._live is not None:
            self._live.update(fitted(rows, self._console.width), refresh=True)

    def next(self, rows: Sequence[Row], error: str | None) -> None:
        """Show the rows of an interval, or the error that prevented the read."""
        start, self._interval_start = self._interval_start, time.monotonic()
        if self._json:
            if error is None:
                interval = {
                    "format": FORMAT,
                    "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "seconds": round(self._interval_start - start, 3),
                    "pods": [item.as_json() for item in rows],
                }
                typer.echo(json.dumps(interval))
        elif self._live is not None:
            messages = [error] if error else [str(item.error) for item in rows if item.error]
            notes = [Text(plain(message), "yellow") for message in messages]
            self._live.update(Group(fitted(rows, self._console.width), *notes), refresh=True)
        elif error is None:
            self._console.print(fitted(rows, self._console.width))
        if error is not None and self._live is None:
            typer.echo(f"specdec: {plain(error)}", err=True)


def fitted(rows: Sequence[Row], width: int) -> Table | Group:
    """A table; in a terminal too narrow for it, a list with whole names above the figures."""
    wide = table(rows)
    return wide if fits(wide, width) else _list(rows, width)


def _list(rows: Sequence[Row], width: int) -> Group:
    """Two lines per pod: its name and state, then the figures for which there is room."""
    columns = {name: [*head.split("\n")] for head, name, _ in _FIGURES}
    for item in rows:
        for _, name, template in _FIGURES:
            columns[name].append(_cell(item, name, template))
    widths = {name: max(map(len, cells)) for name, cells in columns.items()}
    for name in _LEFT_OUT_FIRST:
        if _INDENT + sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        del widths[name]

    def line(cells: Iterator[str], style: str = "") -> Text:
        padded = (f"{cell:>{size}}" for cell, size in zip(cells, widths.values(), strict=True))
        return Text(" " * _INDENT + (" " * _GAP).join(padded), style)

    lines = [line((columns[name][index] for name in widths), "bold") for index in (0, 1)]
    namespaces = len({item.namespace for item in rows}) > 1
    for number, item in enumerate(rows):
        pod = f"{item.namespace}/{item.pod}" if namespaces else item.pod
        lines.append(Text(plain(f"{pod}  ")).append(_state(item)))
        if item.figures is not None:
            lines.append(line(columns[name][2 + number] for name in widths))
        lines += [Text(f"{' ' * _INDENT}{'  '.join(filter(None, it))}") for it in _sources(item)]
    return Group(*lines)


def table(rows: Sequence[Row]) -> Table:
    """One line per pod; `-` where there is no figure."""
    several_namespaces = len({item.namespace for item in rows}) > 1
    heads = (["namespace"] if several_namespaces else []) + ["pod", "state"]
    figures = [head for head, _, _ in _FIGURES]
    result = grid(*heads, *figures, whole={"state", *figures})
    for column in result.columns[len(heads) :]:
        column.justify = "right"
    for item in rows:
        namespace = [item.namespace] if several_namespaces else []
        cells = (_cell(item, name, template) for _, name, template in _FIGURES)
        row(result, *namespace, item.pod, _state(item), *cells)
        for line in _sources(item):
            row(result, *("" for _ in namespace), *line)
    return result


def _state(item: Row) -> Text:
    if item.error:
        return Text("no answer", "red")
    return Text(plain(item.state), "green" if item.state == "Ready" else "yellow")


def _sources(item: Row) -> Iterator[tuple[str, ...]]:
    """The cells of a line for each source of drafts, if there are several."""
    sources = item.figures.sources if item.figures else {}
    if len(sources) < 2:
        return
    rest = ("",) * (len(_FIGURES) - 1)
    for source, did in sources.items():
        share = f"{did.share_percent:.0f} %"
        yield (f"- {plain(source)}", share, f"{did.acceptance_percent:.1f}", *rest)


def _cell(item: Row, name: str, template: str) -> str:
    value = getattr(item.figures, name, None)
    return "-" if value is None else template.format(value)
