"""Tool calls as JSON objects that are the whole answer, as in Llama 3.1 and later."""

import json
import re
from collections.abc import Collection
from json import JSONDecodeError

from specdec.images.openai.parsers.calls import call
from specdec.images.openai.parsers.split import Call, Content, Event

_TAG = "<|python_tag|>"
# Keys with which a call may begin. Other JSON is content, and is not held until the end.
_KEYS = ("name", "parameters", "arguments", "type", "function")
_START = re.compile(r'\{\s*"')


class Llama3Json:
    """Calls are returned at the end of the answer, where it is known that nothing follows them.

    Several calls are separated by semicolons. An answer that does not begin with the object of a
    call is content, and so are objects whose name is no function's.

    Args:
        names: of the functions.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._buffer = ""
        self._is_content = False

    def feed(self, text: str) -> list[Event]:
        """Add text, and return the events that are certain now."""
        if not self._is_content:
            self._buffer += text
            if _may_be_call(self._buffer):
                return []
            text, self._buffer, self._is_content = self._buffer, "", True
        return [Content(text)] if text else []

    def end(self) -> list[Event]:
        """Return the calls, or the text that was held."""
        text, self._buffer = self._buffer, ""
        calls = _calls(text)
        if calls and all(tool.name in self._names for tool in calls):
            return [*calls]
        return [Content(text)] if text else []


def _may_be_call(text: str) -> bool:
    """Whether an answer that begins with this text may consist of calls."""
    text = text.lstrip()
    if _TAG.startswith(text):
        return True
    text = text.removeprefix(_TAG).lstrip()
    if not text or text == "{":
        return True
    start = _START.match(text)
    if start is None:
        return text[0] == "{" and not text[1:].strip()
    key, quote, _ = text[start.end() :].partition('"')
    return key in _KEYS if quote else any(known.startswith(key) for known in _KEYS)


def _calls(text: str) -> list[Call]:
    """The calls of a text of calls and separators; none if it has anything else."""
    decoder, calls = json.JSONDecoder(), list[Call]()
    text = text.strip().removeprefix(_TAG).strip()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except (JSONDecodeError, RecursionError):
            return []
        if (tool := call(value)) is None:
            return []
        calls.append(tool)
        text = text[end:].strip().removeprefix(";").strip()
    return calls
