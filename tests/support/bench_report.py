"""Prints measured figures as JSON lines; the exit status reports missed goals."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Better = Literal["higher", "lower"]
# Units whose values depend on the speed of the machine.
_TIMES = ("us", "ms", "s")
_PER_SECOND = "/s"
_ADDITIONS, _LOOPS = 100_000, 15


@dataclass
class Report:
    """Prints figures as they come and remembers whether every goal was met."""

    missed: list[str] = field(default_factory=list)

    def figure(
        self,
        name: str,
        values: Sequence[float],
        unit: str,
        *,
        goal: float | None = None,
        better: Better = "lower",
    ) -> float:
        """Print the median of repeated measurements, with quartiles as the spread.

        Args:
            name: `<bench>.<figure>`.
            values: one value for each repetition.
            goal: the value that the median has to reach; None for a figure without a goal. A time
                has none, because machines differ: see `against_machine`.
            better: whether higher or lower values are better.

        Returns:
            the median.
        """
        if goal is not None and (unit.split("/")[0] in _TIMES or unit.endswith(_PER_SECOND)):
            raise ValueError(
                f"{name} has a goal in {unit}: compare it with a time of the same run"
            )
        value = float(statistics.median(values))
        met = None
        if goal is not None:
            met = value >= goal if better == "higher" else value <= goal
            if not met:
                self.missed.append(name)
        line = {
            "name": name,
            "value": _short(value),
            "spread": [_short(edge) for edge in _quartiles(values)],
            "unit": unit,
            "goal": goal,
            "better": better,
            "met": met,
            "runs": len(values),
        }
        print(json.dumps(line), flush=True)
        return value

    def against_machine(self, name: str, seconds: Sequence[float], *, goal: float) -> None:
        """Print a time as a multiple of the time that this machine needs now for additions.

        Args:
            name: `<bench>.<figure>`; the figure gets the suffix `_of_additions`.
            seconds: one value for each repetition.
            goal: in times of 100 000 additions of a loop in Python, 5 ms on the machine for which
                the goals were set.
        """
        unit = additions_seconds()
        values = [value / unit for value in seconds]
        self.figure(f"{name}_of_additions", values, "ratio", goal=goal)

    def starts(
        self, name: str, arguments: Sequence[str], runs: int, *, goal: float | None
    ) -> None:
        """Print the time of a command of specdec, also as a multiple of the start of Python.

        The two start in turns, so both meet the same load.
        """
        command = [sys.executable, "-m", "specdec.tools.cli", *arguments]
        pairs = [(_run(command), _run([sys.executable, "-c", "pass"])) for _ in range(runs)]
        self.figure(f"{name}_seconds", [ours for ours, _ in pairs], "s")
        ratios = [ours / bare for ours, bare in pairs]
        self.figure(f"{name}_of_python", ratios, "ratio", goal=goal)

    def note(self, message: str) -> None:
        """Print a message on stderr."""
        print(message, file=sys.stderr, flush=True)

    def exit_status(self) -> int:
        """Return 1 when a goal was missed, and print the missed goals on stderr."""
        for name in self.missed:
            print(f"goal missed: {name}", file=sys.stderr)
        return 1 if self.missed else 0


def additions_seconds() -> float:
    """Return the median time of 100 000 additions in a loop."""
    times = []
    for _ in range(_LOOPS):
        begun, total = time.perf_counter(), 0
        for number in range(_ADDITIONS):
            total += number
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _run(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _short(value: float) -> float:
    return float(f"{value:.4g}")
