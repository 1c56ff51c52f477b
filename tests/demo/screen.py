"""The output of the demo: steps with the time since the start, and the streamed answer."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from demo.progress import Step
from specdec.client.generate import Answer
from specdec.servers.totals import SpeculationTotals

_MARKS = {"True": "[green]✓[/]", "False": "[yellow]…[/]", "Unknown": "[dim]·[/]"}

# The SVG of rich downloads its font from a server; any local monospaced font is enough.
_FONT = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)


class Screen:
    """A console that prints the time since its start."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()

    def cut(self) -> None:
        """Start the recording here: its picture omits all earlier output."""
        if self.console.record:
            self.console.export_text(clear=True)

    def picture(self, title: str) -> str:
        """Return the output since the last cut as an SVG that fetches nothing."""
        svg = self.console.export_svg(title=title, unique_id="specdec", clear=False)
        return _FONT.sub("", svg)

    def line(self, text: str, mark: str = " ") -> None:
        """Print one line of markup after the elapsed seconds."""
        elapsed = time.monotonic() - self.began
        self.console.print(f"[dim]{elapsed:7.1f} s[/] {mark} {text}")

    def report(self, text: str) -> None:
        """Print one line of plain text, such as the output of another tool."""
        self.line(escape(text))

    def step(self, step: Step) -> None:
        """Print a condition that changed."""
        name = f"[bold]{step.type:<16}[/] {step.reason:<14}"
        self.line(f"{name} [dim]{escape(step.message)}[/]", _MARKS[step.status])

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Print the title of a part of the demo, and its duration at the end."""
        began = time.monotonic()
        self.line(f"[bold cyan]{title}[/]", "▸")
        yield
        self.line(f"[dim]{title}: {time.monotonic() - began:.1f} s[/]", "[green]✓[/]")

    def heading(self, title: str) -> None:
        """Print a title in a rule across the screen."""
        self.console.print()
        self.console.rule(title, align="left")

    def prompt(self, text: str) -> None:
        """Print the prompt, before its continuation."""
        self.console.print(f"[bold]{escape(text)}[/]", end="")

    def chunk(self, text: str, index: int) -> None:
        """Print a streamed chunk; two alternating colours show where rounds end."""
        colour = "green" if index % 2 else "bright_green"
        self.console.print(f"[{colour}]{escape(text)}[/]", end="")

    def summary(self, answer: Answer, did: SpeculationTotals, equal: bool | None) -> None:
        """Print the numbers of speculation for the answer."""
        self.console.print("\n")
        rate = f"{100 * did.accepted / did.drafted:.0f} %" if did.drafted else "-"
        length = f"{did.generated / did.rounds:.2f}" if did.rounds else "-"
        rows = [
            ("tokens drafted", str(did.drafted)),
            ("tokens accepted", f"{did.accepted} ({rate})"),
            ("rounds", f"{did.rounds} ({length} tokens a round)"),
            ("streamed", f"{answer.chunks} chunks in {answer.seconds:.2f} s"),
        ]
        if equal is not None:
            rows.append(("equal to the target alone", "yes, byte for byte" if equal else "NO"))
        self.rows(rows)

    def rows(self, rows: list[tuple[str, str]]) -> None:
        """Print names with values."""
        for name, value in rows:
            self.console.print(f"  {name:<26} [bold]{value}[/]")

    def block(self, lines: list[str]) -> None:
        """Print indented lines, such as commands to copy, without interpreting markup."""
        for line in lines:
            self.console.print(f"  {escape(line)}")
