"""Tables on a terminal, in which nothing that a resource or a server says is a command."""

from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.api.text import plain

__all__ = ["ago", "grid", "plain", "row", "screen"]

# Of what is no terminal: lines may be longer than any screen.
_WIDE = 160


def screen() -> Console:
    """stdout, as wide as the terminal, or as a file may be."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def grid(*heads: str, whole: Collection[str] = (), show_header: bool = True) -> Table:
    """A table without lines; columns in `whole` are never folded: what they hold is copied."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=show_header)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in whole)
    return table


def row(table: Table, *cells: Any, style: str | None = None) -> None:
    """Add plain text; a cell that is a `Text` already keeps its style."""
    table.add_row(
        *(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in cells),
        style=style,
    )


def ago(seconds: float) -> str:
    """A span of time in one figure, as kubectl has its ages: 45s, 5m, 3h, 4d."""
    left = max(0, round(seconds))
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if left >= 2 * size:
            return f"{left // size}{letter}"
    return f"{left}s"
