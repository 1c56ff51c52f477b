"""What the demo prints: steps with the time since the start, and the streamed answer."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from demo.progress import Step
from specdec.client.generate import Answer
from specdec.client.metrics import SpeculationTotals

_MARKS = {"True": "[green]✓[/]", "False": "[yellow]…[/]", "Unknown": "[dim]·[/]"}

# The library's picture asks a server for its font; any other of equal widths does.
_FONT = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)


class Screen:
    """A console that prints the time since its start."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()

    def cut(self) -> None:
        """A recording begins here: what was shown until now is no part of its picture."""
        if self.console.record:
            self.console.export_text(clear=True)

    def picture(self, title: str) -> str:
        """What was shown since the last cut, as an SVG that fetches nothing from elsewhere."""
        svg = self.console.export_svg(title=title, unique_id="specdec", clear=False)
        return _FONT.sub("", svg)

    def line(self, text: str, mark: str = " ") -> None:
        """One line of markup behind the elapsed seconds."""
        elapsed = time.monotonic() - self.began
        self.console.print(f"[dim]{elapsed:7.1f} s[/] {mark} {text}")

    def report(self, text: str) -> None:
        """One line of plain text, as other tools print it."""
        self.line(escape(text))

    def step(self, step: Step) -> None:
        """A condition that changed."""
        name = f"[bold]{step.type:<16}[/] {step.reason:<14}"
        self.line(f"{name} [dim]{escape(step.message)}[/]", _MARKS[step.status])

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """A part of the demo under its title, with the time it took at the end."""
        began = time.monotonic()
        self.line(f"[bold cyan]{title}[/]", "▸")
        yield
        self.line(f"[dim]{title}: {time.monotonic() - began:.1f} s[/]", "[green]✓[/]")

    def heading(self, title: str) -> None:
        """A rule across the screen."""
        self.console.print()
        self.console.rule(title, align="left")

    def prompt(self, text: str) -> None:
        """The prompt, before its continuation."""
        self.console.print(f"[bold]{escape(text)}[/]", end="")

    def chunk(self, text: str, index: int) -> None:
        """One streamed chunk; two colours in turn show where rounds end."""
        colour = "green" if index % 2 else "bright_green"
        self.console.print(f"[{colour}]{escape(text)}[/]", end="")

    def summary(self, answer: Answer, did: SpeculationTotals, equal: bool | None) -> None:
        """What speculation did for the answer."""
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
        for name, value in rows:
            self.console.print(f"  {name:<26} [bold]{value}[/]")

    def block(self, lines: list[str]) -> None:
        """Commands to copy, indented, nothing interpreted."""
        for line in lines:
            self.console.print(f"  {escape(line)}")
