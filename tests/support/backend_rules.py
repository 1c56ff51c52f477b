"""Writes into the CRD what depends on the backends: their names, and the rules of their tables.

`make generate` runs it as `python -m support.backend_rules`; a test compares the two. The parts of
the CRD are between marks, in which `make generate` is named.
"""

import re
from collections.abc import Iterator

from specdec.api.matrix import matrix
from specdec.backends.definition_rules import rules
from support.documents import CRD

# Columns of a line beside the indentation of the list.
_WIDTH = 84
_INDENT = "    "


def written(definition: str) -> str:
    """Return the text of the CRD with the names and rules of the backends of today."""
    text = _between(definition, "names of backends", [f"enum: [{', '.join(matrix())}]"])
    return _between(text, "rules of backends", _rules())


def _between(text: str, name: str, lines: list[str]) -> str:
    """Return a text with other lines between the two marks of a part, as deep as the marks."""
    part = re.compile(rf"( *)# {name}: [^\n]*\n(?:.*?\n)? *# end of {name}\n", re.DOTALL)
    (match,) = part.finditer(text)
    head, end = match[0].split("\n", 1)[0], f"{match[1]}# end of {name}"
    body = [f"{match[1]}{line}" for line in lines]
    return text[: match.start()] + "\n".join([head, *body, end]) + "\n" + text[match.end() :]


def _rules() -> list[str]:
    return [line for rule in rules() for line in _rule(rule.rule, rule.field, rule.message)]


def _rule(expression: str, field: str, message: str) -> Iterator[str]:
    yield "- rule: >-"
    yield from _folded(expression)
    yield f"  fieldPath: .{field}"
    yield "  message: >-"
    yield from _folded(message)


def _folded(text: str) -> list[str]:
    """Return the lines of a folded scalar below a key of a list item."""
    lines = [_INDENT]
    for part in text.split(" "):
        if lines[-1] == _INDENT:
            lines[-1] += part
        elif len(lines[-1]) + 1 + len(part) <= _WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(_INDENT + part)
    return lines


if __name__ == "__main__":
    CRD.write_text(written(CRD.read_text("utf-8")), encoding="utf-8")
