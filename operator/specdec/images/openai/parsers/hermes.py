"""Tool calls as JSON between `<tool_call>` and `</tool_call>`, as in Hermes and Qwen."""

from specdec.images.openai.parsers.calls import call, parsed
from specdec.images.openai.parsers.split import Content, Event, held

OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """A call is returned when its end tag arrives; blanks around calls are left out.

    Text between the tags that is no call remains content, with its tags.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._inside = False
        self._after_call = False

    def feed(self, text: str) -> list[Event]:
        """Add text, and return the events that are certain now."""
        self._buffer += text
        events: list[Event] = []
        while True:
            self._drop_blanks()
            head, tag, tail = self._buffer.partition(_CLOSE if self._inside else OPEN)
            if not tag:
                break
            if self._inside:
                tool = call(parsed(head))
                events.append(tool or Content(f"{OPEN}{head}{_CLOSE}"))
                self._after_call = tool is not None
            elif head := head.rstrip():
                events.append(Content(head))
            self._buffer, self._inside = tail, not self._inside
        if not self._inside and (text := self._certain()):
            events.append(Content(text))
        return events

    def end(self) -> list[Event]:
        """Return a call without its end tag, or the text that was held."""
        text, self._buffer = self._buffer, ""
        if not self._inside:
            return [Content(text)] if text else []
        self._inside = False
        return [call(parsed(text)) or Content(OPEN + text)]

    def _drop_blanks(self) -> None:
        """Remove blanks behind a call."""
        if self._after_call and not self._inside:
            self._buffer = self._buffer.lstrip()
            self._after_call = not self._buffer

    def _certain(self) -> str:
        """Take the text that belongs neither to a tag nor to the blanks before a tag."""
        text = self._buffer[: len(self._buffer) - held(self._buffer, (OPEN,))].rstrip()
        self._buffer = self._buffer[len(text) :]
        return text
