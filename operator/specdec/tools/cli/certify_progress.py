"""What `specdec certify` shows: the matrix, a line per result, and what it waits for now."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from specdec.tools.certify.matrix import Entry
from specdec.tools.certify.page import duration
from specdec.tools.terminal import grid, plain, row, screen

_STYLES = {"passed": "green", "failed": "red"}


class Progress:
    """A context manager; a terminal gets a line that changes, a file or a pipe a line per step.

    Args:
        count: number of entries.
    """

    def __init__(self, count: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._count = count
        self._done = 0
        self._entry_start = time.monotonic()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._bar = Bar(
            *columns,
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def started(self, entry: Entry, *, resumed: bool) -> None:
        """Show that an entry starts or continues."""
        self._entry_start = time.monotonic()
        self._bar.reset(self._task, visible=True, description=self._text(entry, ""))
        if not self._console.is_terminal:
            self._line(entry, "continues" if resumed else "starts")

    def step(self, entry: Entry, message: str) -> None:
        """Show what an entry waits for."""
        self._bar.update(self._task, description=self._text(entry, message))
        if not self._console.is_terminal:
            self._line(entry, message)

    def ended(self, entry: Entry, result: dict[str, Any], *, earlier: bool) -> None:
        """Print the result of an entry."""
        self._done += 1
        outcome = result["outcome"]
        took = "earlier" if earlier else duration(time.monotonic() - self._entry_start)
        head = Text(f"{self._done}/{self._count} ")
        head.append(plain(entry.name), "bold")
        head.append(f" {outcome}", _STYLES.get(outcome, ""))
        head.append(plain(f" ({took}): {result['sentence']}"))
        self._bar.update(self._task, visible=False)
        self._console.print(head, soft_wrap=True)

    def _text(self, entry: Entry, message: str) -> str:
        text = plain(f"{self._done + 1}/{self._count} {entry.name}  {message}")
        width = max(20, self._console.width - 16)
        return text[:width]

    def _line(self, entry: Entry, message: str) -> None:
        self._console.print(
            Text(plain(f"{self._done + 1}/{self._count} {entry.name}: {message}")), soft_wrap=True
        )


def show(entries: Sequence[Entry]) -> None:
    """Print the matrix: what is tried, and why the others are not."""
    table = grid("ENTRY", "METHOD", "TRIED", "", whole={"ENTRY", "METHOD", "TRIED"})
    for entry in entries:
        state = "no" if entry.not_tried else "yes"
        row(table, entry.name, entry.method, state, entry.not_tried or entry.title)
    screen().print(table)
