"""Reasoning between `<think>` and `</think>`, before the answer."""

from collections.abc import Sequence

from specdec.images.openai.parsers.split import Content, Event, Reasoning, held

_END = 64
_OPEN, _CLOSE = "<think>", "</think>"


def opened(prompt: str, *, default: bool) -> bool:
    """Whether an answer to this prompt begins within a thought.

    Args:
        prompt: the rendered template, which writes one of the tags or both at its end, or neither.
        default: of a prompt with neither.
    """
    end = prompt[-_END:].rstrip()
    if end.endswith(_CLOSE):
        return False
    return end.endswith(_OPEN) or default


class Thinking:
    """Reasoning until `</think>`, then content. Line breaks behind a tag belong to the tag.

    `_thinks` is None until it is known whether the text begins with reasoning.

    Args:
        is_open: text without `<think>` is reasoning.
        markers: they end reasoning too, and are content.
    """

    def __init__(self, is_open: bool, markers: Sequence[str] = ()) -> None:
        self._is_open, self._ends = is_open, (_CLOSE, *markers)
        self._buffer = ""
        self._thinks: bool | None = None
        self._after_tag = False

    def feed(self, text: str) -> list[Event]:
        """Add text, and return the events that are certain now."""
        if self._thinks is False and not self._after_tag:
            return [Content(text)]
        self._buffer += text
        if self._thinks is None and not self._begin():
            return []
        if not self._thinks:
            text = self._taken(len(self._buffer))
            return [Content(text)] if text else []
        ends = [(at, end) for end in self._ends if (at := self._buffer.find(end)) >= 0]
        if not ends:
            text = self._taken(len(self._buffer) - held(self._buffer, self._ends))
            return [Reasoning(text)] if text else []
        at, _ = min(ends)
        head, tail = self._buffer[:at], self._buffer[at:].removeprefix(_CLOSE)
        reasoning = self._taken(len(head))
        self._buffer, self._thinks, self._after_tag = tail, False, True
        text = self._taken(len(tail))
        events: list[Event] = [Reasoning(reasoning)] if reasoning else []
        return [*events, Content(text)] if text else events

    def end(self) -> list[Event]:
        """Return the text that might have been the beginning of a tag."""
        thinks = self._is_open if self._thinks is None else self._thinks
        text, self._buffer = self._buffer, ""
        if not text:
            return []
        return [Reasoning(text) if thinks else Content(text)]

    def _begin(self) -> bool:
        """Decide whether the text begins with reasoning; false if more text is needed."""
        start = self._buffer.lstrip()
        if start.startswith(_OPEN):
            self._buffer, self._thinks, self._after_tag = start[len(_OPEN) :], True, True
        elif _OPEN.startswith(start):
            return False
        else:
            self._thinks = self._is_open
        return True

    def _taken(self, length: int) -> str:
        """Take text from the buffer, without the line breaks behind a tag."""
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if self._after_tag:
            text = text.lstrip("\n")
            self._after_tag = not text
        return text
