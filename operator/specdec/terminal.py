"""Tables for terminals, with control characters of untrusted text escaped.

Commands print through it. Text of a resource or a server can neither move the cursor nor change
colors.
"""

from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.api.text import plain

__all__ = ["ago", "grid", "plain", "row", "screen"]

# Columns where the output is not a terminal.
_FILE_WIDTH = 160


def screen() -> Console:
    """stdout with the width of the terminal, or a fixed one for a file or a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def grid(*heads: str, whole: Collection[str] = (), show_header: bool = True) -> Table:
    """A table without borders; columns in `whole` are not wrapped, so their text can be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=show_header)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in whole)
    return table


def row(table: Table, *cells: Any, style: str | None = None) -> None:
    """Add a row of escaped text; a cell that is a `Text` keeps its style."""
    table.add_row(
        *(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in cells),
        style=style,
    )


def ago(seconds: float) -> str:
    """An age in one unit as kubectl prints it: 45s, 5m, 3h, 4d."""
    rounded = max(0, round(seconds))
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if rounded >= 2 * size:
            return f"{rounded // size}{letter}"
    return f"{rounded}s"
