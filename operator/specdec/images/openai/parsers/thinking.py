"""Reasoning between `<think>` and `</think>`, before the answer."""

from specdec.images.openai.parsers.split import Content, Event, Reasoning, held

_OPEN, _CLOSE = "<think>", "</think>"


class _Thinking:
    """Reasoning until `</think>`, then content. Line breaks behind a tag belong to the tag.

    `_thinks` is None until it is known whether the text begins with reasoning.
    """

    # Whether text without `<think>` is reasoning: the template may have opened it already.
    opened_by_template: bool

    def __init__(self) -> None:
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
        head, tag, tail = self._buffer.partition(_CLOSE)
        if not tag:
            text = self._taken(len(self._buffer) - held(self._buffer, (_CLOSE,)))
            return [Reasoning(text)] if text else []
        reasoning = self._taken(len(head))
        self._buffer, self._thinks, self._after_tag = tail, False, True
        text = self._taken(len(tail))
        events: list[Event] = [Reasoning(reasoning)] if reasoning else []
        return [*events, Content(text)] if text else events

    def end(self) -> list[Event]:
        """Return the text that might have been the beginning of a tag."""
        thinks = self.opened_by_template if self._thinks is None else self._thinks
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
            self._thinks = self.opened_by_template
        return True

    def _taken(self, length: int) -> str:
        """Take text from the buffer, without the line breaks behind a tag."""
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if self._after_tag:
            text = text.lstrip("\n")
            self._after_tag = not text
        return text


class DeepSeekR1(_Thinking):
    """All text before `</think>` is reasoning: the templates of DeepSeek-R1 write `<think>`."""

    opened_by_template = True


class Qwen3(_Thinking):
    """Reasoning only if the answer begins with `<think>`."""

    opened_by_template = False
