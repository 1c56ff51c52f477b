"""Versions and compute capabilities, compared by number."""

import re

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version starts with: of 1.3.0rc5 these are 1, 3 and 0.

    Raises:
        ValueError: the text starts with no number.
    """
    start = _NUMBERS.match(text)
    if not start:
        raise ValueError(f"version is {text!r}; give dotted numbers, such as 1.2.0")
    return tuple(map(int, start[0].split(".")))


def at_least(version: str, least: str) -> bool:
    """Whether a version or compute capability is `least` or more; both are dotted numbers."""
    return numbers(version) >= numbers(least)
