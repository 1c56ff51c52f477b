"""Translate regular expressions of RE2, which the API server uses, to those of Python."""

import re
from functools import cache

from specdec.pipeline.validation.cel.syntax import UnsupportedError

_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:cntrl:]": r"\x00-\x1f\x7f",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:print:]": r"\x20-\x7e",
    "[:space:]": r"\t-\r\x20",
    "[:upper:]": "A-Z",
}
# Escapes of letters and digits that mean the same in both with re.ASCII, outside of brackets.
_SAME = set("dDwWbBnrtfA")
_PART = re.compile(r"\\.|\[:\w+:\]|.", re.DOTALL)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of RE2 for Python's `search`.

    Raises:
        UnsupportedError: it uses a part of RE2 that is not translated.
    """
    translated, in_brackets, before = [], False, ""
    for part in _PART.findall(pattern):
        translated.append(_translated(part, in_brackets, before))
        if part == "[":
            in_brackets = True
        elif part == "]" and before not in ("[", "[^"):
            in_brackets = False
        before = "[^" if (before, part) == ("[", "^") else part
    try:
        return re.compile("".join(translated), re.ASCII)
    except re.error as error:
        raise UnsupportedError(f"unsupported pattern {pattern!r}: {error}") from error


def _translated(part: str, in_brackets: bool, before: str) -> str:
    if in_brackets and part.startswith("[:") and len(part) > 2:
        if part not in _CLASSES:
            raise UnsupportedError(f"unsupported class {part}")
        return _CLASSES[part]
    if in_brackets and part == "[":
        return r"\["
    # Python's `$` also matches before a line break at the end.
    if part == "$" and not in_brackets:
        return r"\Z"
    if part == "?" and before == "(":
        raise UnsupportedError("unsupported group (?")
    if len(part) == 2 and part[1].isalnum() and part[1] not in _SAME:
        raise UnsupportedError(f"unsupported escape {part}")
    return part
