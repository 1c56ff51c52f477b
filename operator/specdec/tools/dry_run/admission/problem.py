"""What the API server reports about a field, in its sentences."""

import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from typing_extensions import override

_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v"}
_LONGEST = 200


class Kind(Enum):
    """The kinds of problems: the API server's name of each, and whether it is blocking.

    The CRD's rules may rely on the schema. So they are not checked if a problem is of a blocking
    kind.
    """

    REQUIRED = ("Required value", True)
    DUPLICATE = ("Duplicate value", False)
    INVALID = ("Invalid value", False)
    TYPE = ("Invalid value", True)
    UNSUPPORTED = ("Unsupported value", True)
    FORBIDDEN = ("Forbidden", False)
    TOO_LONG = ("Too long", True)
    TOO_MANY = ("Too many", True)
    UNKNOWN = ("unknown field", True)

    def __init__(self, title: str, blocking: bool) -> None:
        self.title = title
        self.blocking = blocking


# The field of a problem that concerns the whole resource.
WHOLE = "<nil>"
_WITHOUT_VALUE = {Kind.REQUIRED, Kind.FORBIDDEN, Kind.TOO_LONG}


class _NoValue:
    """Stands for the value of an object or list, which the API server does not repeat."""


NO_VALUE = _NoValue()


@dataclass(frozen=True)
class Problem:
    """One reason to refuse a resource.

    Attributes:
        field: the path of the field, such as `spec.target.dtype`.
        kind: what is wrong.
        value: the JSON value of the field, or NO_VALUE.
        detail: the sentence of the rule; may be empty.
        hint: a fix that the API server does not give, such as the nearest known name.
    """

    field: str
    kind: Kind
    value: Any = NO_VALUE
    detail: str = ""
    hint: str = ""

    @property
    def message(self) -> str:
        """The API server's message of the cause, with the whole value."""
        if self.kind is Kind.UNKNOWN:
            return f'strict decoding error: unknown field "{self.field}"'
        value = "" if self._valueless else f": {shown(self.value)}"
        return f"{self.kind.title}{value}" + (f": {self.detail}" if self.detail else "")

    @override
    def __str__(self) -> str:
        """Field, message and hint for people, on one line; a long field or value is shortened."""
        message = self.message
        if not self._valueless:
            message = message.replace(shown(self.value), short(shown(self.value)))
        message = message.replace(self.field, short(self.field))
        named = self.kind is Kind.UNKNOWN or self.field == WHOLE
        line = message if named else f"{short(self.field)}: {message}"
        return one_line(f"{line}: {self.hint}" if self.hint else line)

    @property
    def _valueless(self) -> bool:
        return self.value is NO_VALUE or self.kind in _WITHOUT_VALUE


def short(text: str) -> str:
    """A text of any length, shortened."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def one_line(text: str) -> str:
    """A text whose line breaks and control characters are escaped."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def shown(value: Any) -> str:
    """A value as the API server prints it: JSON, but texts with Go's escapes."""
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def number(value: float) -> str:
    """A float as Go prints it: with an exponent from a million on."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) + int(exponent) - 1
    if -4 <= power < 6:
        return format(Decimal(repr(value)).normalize(), "f")
    fraction = "".join(map(str, digits[1:]))
    mantissa = f"{'-' * sign}{digits[0]}" + (f".{fraction}" if fraction else "")
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter in _ESCAPES:
        return f"\\{_ESCAPES[letter]}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
