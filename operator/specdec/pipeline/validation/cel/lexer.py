"""Split an expression into tokens."""

import re
from dataclasses import dataclass

from specdec.pipeline.validation.cel.syntax import UnsupportedError

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?![0-9A-Za-z_.]))
    | (?P<text>r?'(?:[^'\\\n]|\\.)*'|r?"(?:[^"\\\n]|\\.)*")
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>\.\?|\[\?|&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r", "`": "`", "?": "?"}


@dataclass(frozen=True)
class Token:
    """A token, by its kind: number, text, name, sign or end."""

    kind: str
    text: str


def tokens(expression: str) -> list[Token]:
    """The tokens of an expression, the last one of kind end.

    Raises:
        UnsupportedError: a character or escape is not part of an expression.
    """
    result, position = [], 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise UnsupportedError(f"unsupported syntax at {expression[position:]!r:.30}")
        position = match.end()
        if match.lastgroup != "blank":
            result.append(Token(str(match.lastgroup), match.group()))
    return [*result, Token("end", "")]


def text_value(token: str) -> str:
    """The value of a text token, whose escapes a leading `r` turns off."""
    if token.startswith("r"):
        return token[2:-1]
    return _ESCAPE.sub(lambda match: _unescaped(match.group(1)), token[1:-1])


def _unescaped(letter: str) -> str:
    if letter not in _ESCAPES:
        raise UnsupportedError(f"unsupported escape \\{letter}")
    return _ESCAPES[letter]
