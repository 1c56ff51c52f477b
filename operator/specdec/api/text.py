"""Make text from pods and servers safe to show: escape control characters and limit its length."""

from typing import Any
from unicodedata import category

# The limit of a message in the status, in characters. An event's note has at most 1024 bytes.
LIMIT = 1024
_MORE = "…"
# Unicode categories that do not print: controls, formats (direction, no width), surrogates, and
# separators of lines and paragraphs.
_NO_SIGNS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, keep: str = "\n") -> str:
    """Escape every character that does not print, as in \\x1b, except those of `keep`.

    The escaped characters are control characters, characters that change the direction of text or
    have no width, and half a surrogate pair, which no encoder accepts.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or category(c) not in _NO_SIGNS else _spelled(c) for c in text)


def _spelled(character: str) -> str:
    return f"\\x{ord(character):02x}"


def line(text: str) -> str:
    """`plain` text on one line: every blank and line break becomes a space."""
    if text.isprintable():
        return text
    return plain("".join(" " if c.isspace() else c for c in text))


def cut(text: str, limit: int = LIMIT) -> str:
    """At most `limit` characters, cut at a word; an ellipsis stands for the rest."""
    if len(text) <= limit:
        return text
    head = text[: limit - len(_MORE)]
    at = head.rfind(" ")
    return head[: at if at > limit // 2 else None].rstrip(" ,;:") + _MORE


def bounded(value: Any) -> Any:
    """A JSON value whose strings are each one line and cut; keys are those of the operator."""
    if isinstance(value, str):
        return cut(line(value))
    if isinstance(value, dict):
        return {key: bounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(inner) for inner in value]
    return value
