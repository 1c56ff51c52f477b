"""What `specdec top` shows: a table that changes in place, or one below the other."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specdec.inspect.top import FORMAT, Row
from specdec.terminal import grid, plain, row, screen

_FIGURES = (
    ("accep-\nted %", "acceptance_percent", "{:.1f}"),
    ("tokens\n/round", "tokens_per_round", "{:.2f}"),
    ("draft\nlen", "draft_length", "{:.0f}"),
    ("in\nflight", "in_flight", "{:.0f}"),
    ("wait-\ning", "waiting", "{:.0f}"),
    ("asked\n/s", "requests_per_second", "{:.1f}"),
    ("tokens\n/s", "tokens_per_second", "{:.0f}"),
    ("fall-\nback", "fallbacks", "{:.0f}"),
    ("KV\n%", "kv_percent", "{:.0f}"),
)


class Display:
    """Where the rows go; a context manager.

    A terminal has one table that changes, anything else a table or a line of JSON a look.
    """

    def __init__(self, *, as_json: bool, once: bool) -> None:
        self._json = as_json
        self._began = time.monotonic()
        self._console = screen()
        changes = self._console.is_terminal and not as_json and not once
        # Drawn when there is something new, and by no thread of its own.
        self._live = Live(console=self._console, auto_refresh=False) if changes else None

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
        """A first look, which knows nothing of the time before it."""
        self._began = time.monotonic()
        if self._live is not None:
            self._live.update(table(rows), refresh=True)

    def next(self, rows: Sequence[Row], missed: str | None) -> None:
        """What happened since the last look, or why nothing is known of it."""
        began, self._began = self._began, time.monotonic()
        if self._json:
            if missed is None:
                told = {
                    "format": FORMAT,
                    "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "seconds": round(self._began - began, 3),
                    "pods": [one.as_json() for one in rows],
                }
                typer.echo(json.dumps(told))
        elif self._live is not None:
            words = [missed] if missed else [str(one.error) for one in rows if one.error]
            notes = [Text(plain(note), "yellow") for note in words]
            self._live.update(Group(table(rows), *notes), refresh=True)
        elif missed is None:
            self._console.print(table(rows))
        if missed is not None and self._live is None:
            typer.echo(f"specdec: {plain(missed)}", err=True)


def table(rows: Sequence[Row]) -> Table:
    """One line a pod; `-` where there is nothing to measure."""
    several = len({one.namespace for one in rows}) > 1
    heads = (["namespace"] if several else []) + ["pod", "state"]
    figures = [head for head, _, _ in _FIGURES]
    # What does not fit folds the name of a pod, not a figure.
    found = grid(*heads, *figures, whole={"state", *figures})
    for column in found.columns[len(heads) :]:
        column.justify = "right"
    for one in rows:
        words = "no answer" if one.error else one.state
        style = "red" if one.error else "green" if one.state == "Ready" else "yellow"
        place = [one.namespace] if several else []
        cells = (_cell(one, name, form) for _, name, form in _FIGURES)
        row(found, *place, one.pod, Text(plain(words), style), *cells)
    return found


def _cell(one: Row, name: str, form: str) -> str:
    value = getattr(one.figures, name, None)
    return "-" if value is None else form.format(value)
