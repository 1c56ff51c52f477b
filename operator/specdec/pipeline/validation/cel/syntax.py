"""The syntax tree of an expression."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class UnsupportedError(ValueError):
    """The expression is not CEL, or uses a part of CEL that this package lacks."""


@dataclass(frozen=True)
class Node:
    """Part of an expression."""


@dataclass(frozen=True)
class Literal(Node):
    """A text, number, bool or null."""

    value: Any


@dataclass(frozen=True)
class Name(Node):
    """A variable."""

    name: str


@dataclass(frozen=True)
class Items(Node):
    """A list, `[a, b]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Access(Node):
    """`operand.key` or `operand[key]`; `optional` for `operand.?key` and `operand[?key]`."""

    operand: Node
    key: Node
    optional: bool


@dataclass(frozen=True)
class Has(Node):
    """`has(operand.field)`."""

    operand: Node
    field: str


@dataclass(frozen=True)
class Macro(Node):
    """`operand.all(variable, test)`; the `macro` is `all`, `exists` or `exists_one`."""

    macro: str
    operand: Node
    variable: str
    test: Node


@dataclass(frozen=True)
class Logic(Node):
    """`left && right` or `left || right`: `decisive` is the value that decides alone."""

    decisive: bool
    left: Node
    right: Node


@dataclass(frozen=True)
class Choice(Node):
    """`test ? yes : no`."""

    test: Node
    yes: Node
    no: Node


@dataclass(frozen=True)
class Call(Node):
    """A function or operator by its name; the target of a method is the first argument."""

    function: str
    arguments: tuple[Node, ...]


def names(node: Node) -> set[str]:
    """Every variable that an expression reads, with those of its own macros."""
    return {part.name for part in _parts(node) if isinstance(part, Name)}


def _parts(node: Node) -> Iterator[Node]:
    yield node
    for value in vars(node).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node):
                yield from _parts(part)
