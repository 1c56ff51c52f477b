"""Read the templates of Triton's models: what a `config.pbtxt` declares, before it is filled in.

The templates are protobuf text with placeholders such as `${logits_datatype}`. Images have Python,
but may lack the package protobuf. Therefore this module has its own reader, which keeps names and
values and does not know which fields exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>[\s,;]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<word>\$\{[^}\n]*\}|[\w.+-]+)
      | (?P<sign>[:{}<>\[\]])""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}
# The templates nest 4 levels.
_DEEPEST = 16
# A message keeps the values of a field in the order of the file; a value is a message or a text.
Message = dict[str, list["Message | str"]]


class TemplateError(ValueError):
    """A text that is no protobuf text: the line and what is wrong with it."""


@dataclass(frozen=True)
class Tensor:
    """An input or output; `data_type` is as written, a placeholder included."""

    name: str
    data_type: str
    optional: bool


@dataclass(frozen=True)
class Template:
    """What a template declares: tensors, and keys of parameters."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    keys: tuple[str, ...]


def read(text: str) -> Template:
    """Read a template.

    Raises:
        TemplateError: it is no protobuf text, or a tensor has no name or type.
    """
    message = _Reader(text).message("", 0)
    return Template(
        inputs=tuple(_tensors(message, "input")),
        outputs=tuple(_tensors(message, "output")),
        keys=tuple(_text(entry, "key") for entry in _messages(message, "parameters")),
    )


def _tensors(message: Message, side: str) -> Iterator[Tensor]:
    for entry in _messages(message, side):
        optional = entry.get("optional", ["false"])[-1] == "true"
        yield Tensor(_text(entry, "name"), _text(entry, "data_type"), optional)


def _messages(message: Message, field: str) -> Iterator[Message]:
    for value in message.get(field, []):
        if not isinstance(value, dict):
            raise TemplateError(f"{field} is {value!r:.40}, not a message")
        yield value


def _text(message: Message, field: str) -> str:
    value = message.get(field, [None])[-1]
    if not isinstance(value, str):
        raise TemplateError(f"a tensor or a parameter has no {field}")
    return value


class _Reader:
    """Tokens of a text one after another, and the messages they make."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def message(self, end: str, depth: int) -> Message:
        """Fields up to the sign `end`, or to the end of the text if `end` is empty."""
        if depth > _DEEPEST:
            raise TemplateError(f"line {self._line()}: nested deeper than {_DEEPEST} levels")
        fields: Message = {}
        while self._sign() != end:
            name = self._take("word")
            if self._sign() == ":":
                self._at += 1
            fields.setdefault(name, []).extend(self._values(depth))
        self._at += 1
        return fields

    def _values(self, depth: int) -> Iterator[Message | str]:
        """One value, or those of a list."""
        if self._sign() != "[":
            yield self._value(depth)
            return
        self._at += 1
        while self._sign() != "]":
            yield self._value(depth)
        self._at += 1

    def _value(self, depth: int) -> Message | str:
        sign = self._sign()
        if sign in _CLOSING:
            self._at += 1
            return self.message(_CLOSING[sign], depth + 1)
        kind, text, _ = self._next()
        if kind == "word":
            self._at += 1
            return text
        parts = []
        while self._next()[0] == "text":
            parts.append(self._take("text")[1:-1])
        if not parts:
            raise TemplateError(f"line {self._line()}: {text or 'the end'} where a value belongs")
        return "".join(parts)

    def _take(self, kind: str) -> str:
        actual, text, line = self._next()
        if actual != kind:
            raise TemplateError(f"line {line}: {text or 'the end'} where a field belongs")
        self._at += 1
        return text

    def _sign(self) -> str:
        """The next sign; empty at the end, "-" before a name or a value."""
        kind, text, _ = self._next()
        return text if kind in ("sign", "end") else "-"

    def _next(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "", 0)

    def _line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)][2] if self._tokens else 1


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and line of each token."""
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"line {line}: {text[at]!r} belongs to no protobuf text")
        if match.lastgroup not in (None, "space"):
            yield str(match.lastgroup), match[0], line
        line += match[0].count("\n")
        at = match.end()
