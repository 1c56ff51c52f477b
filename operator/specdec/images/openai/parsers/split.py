"""What parsers return, and the search for a marker in text that arrives in pieces."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A complete tool call; `arguments` is a JSON object as text."""

    name: str
    arguments: str


Event = Content | Reasoning | Call


class Parser(Protocol):
    """An incremental parser of one answer."""

    def feed(self, text: str) -> list[Event]:
        """Add text, and return the events that are certain now."""

    def end(self) -> list[Event]:
        """Return what the end of the answer decides."""


def held(text: str, markers: Iterable[str]) -> int:
    """The length of the longest end of `text` that is the start of a marker, but not all of it."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest


def joined(events: Iterable[Event]) -> list[Event]:
    """The events, with neighbours of one kind joined and empty texts left out."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Call):
            result.append(event)
        elif not event.text:
            continue
        elif isinstance(event, Content) and isinstance(last, Content):
            result[-1] = Content(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + event.text)
        else:
            result.append(event)
    return result
