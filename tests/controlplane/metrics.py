"""Sums of samples on a page of metrics."""

from collections.abc import Sequence


def total(page: list[str], name: str, labels: Sequence[str] = ()) -> float:
    """Return the sum of a metric's samples that have all of these labels."""
    taken = [
        line
        for line in page
        if line.split("{")[0].split(" ")[0] == name and all(label in line for label in labels)
    ]
    return sum(float(line.rpartition(" ")[2]) for line in taken)
