"""Prints measured figures as JSON lines; the exit status reports missed goals."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Better = Literal["higher", "lower"]


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
            goal: the value that the median has to reach; None for a figure without a goal.
            better: whether higher or lower values are better.

        Returns:
            the median.
        """
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

    def note(self, message: str) -> None:
        """Print a message on stderr."""
        print(message, file=sys.stderr, flush=True)

    def exit_status(self) -> int:
        """Return 1 when a goal was missed, and print the missed goals on stderr."""
        for name in self.missed:
            print(f"goal missed: {name}", file=sys.stderr)
        return 1 if self.missed else 0


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _short(value: float) -> float:
    return float(f"{value:.4g}")
