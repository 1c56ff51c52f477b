"""Tables for terminals, with control characters of untrusted text escaped.

Commands print through it. Text of a resource or a server can neither move the cursor nor change
colors.
"""

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from specdec.api.text import plain

__all__ = ["ago", "fits", "grid", "items", "plain", "row", "screen", "waiting"]

# Columns where the output is not a terminal: no line is wrapped.
_FILE_WIDTH = 100_000


def screen() -> Console:
    """stdout with the width of the terminal; lines for a file or a pipe are not padded."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    unpadded = _Unpadded(console.file)
    return Console(highlight=False, width=_FILE_WIDTH, file=cast(IO[str], unpadded))


@contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """Show on stderr what a command waits for; yields a function that shows a message.

    A terminal has a line that changes; a file or a pipe gets a line per call.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda message: console.print(Text(plain(message)), soft_wrap=True)
        return
    with console.status("") as status:
        yield lambda message: status.update(Text(plain(message)))


class _Unpadded(io.TextIOBase):
    """Writes lines without the spaces that Rich adds to fill the last column of a table."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @override
    def write(self, text: str) -> int:
        return self._file.write(re.sub(r" +(?=\n)", "", text))

    @override
    def flush(self) -> None:
        self._file.flush()


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


def fits(table: Table, width: int) -> bool:
    """Whether a table needs at most `width` columns, with no cell wrapped."""
    unlimited = Console(width=_FILE_WIDTH, file=io.StringIO())
    return unlimited.measure(table).maximum <= width


def items(entries: Iterable[tuple[str | Text, str | Text, str]]) -> Group:
    """A list in place of a table that does not fit.

    Args:
        entries: for each item its first line, usually its name; its figures; and a message.
    """
    lines: list[Text | Padding] = []
    for name, details, message in entries:
        lines.append(name if isinstance(name, Text) else Text(plain(name)))
        shown = details if isinstance(details, Text) else Text(plain(details))
        below = (shown, Text(plain(message), "dim"))
        lines += [Padding(text, (0, 0, 0, 2)) for text in below if text]
    return Group(*lines)


def ago(seconds: float) -> str:
    """An age in one unit as kubectl prints it: 45s, 5m, 3h, 4d."""
    rounded = max(0, round(seconds))
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if rounded >= 2 * size:
            return f"{rounded // size}{letter}"
    return f"{rounded}s"
