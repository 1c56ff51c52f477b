"""What a module's source defines and always imports, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

# Calls and attributes by which a module defines names that its source does not show.
_CALLS = frozenset({"globals", "vars", "exec", "setattr", "locals"})
_SHADOWS = frozenset({"modules", "__dict__", "__path__"})
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names_of(tree: ast.Module) -> tuple[set[str], list[ast.ImportFrom]] | None:
    """The names that a module defines, and its imports with a star; None if it hides names."""
    names: set[str] = set()
    stars: list[ast.ImportFrom] = []
    for node in _module_level(tree):
        if _hides(node):
            return None
        if isinstance(node, _Definition):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
            stars += [node] if node.names[0].name == "*" else []
    return (names, stars) if "__getattr__" not in names else None


def _module_level(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module without the bodies of its functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (*_Definition, ast.Lambda)):
            yield from _module_level(node)


def _hides(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _CALLS
    return isinstance(node, ast.Attribute) and node.attr in _SHADOWS


def imported_statements(tree: ast.Module | None) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that every import of the module executes.

    Those under a condition are left out, and those whose failure the module handles.
    """
    return _always(tree.body if tree else ())


def _always(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.With | ast.ClassDef):
            yield from _always(statement.body)
        elif isinstance(statement, ast.Try):
            if not any(map(_handles, statement.handlers)):
                yield from _always((*statement.body, *statement.orelse))
            yield from _always(statement.finalbody)


def _handles(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes the error of an import."""
    if handler.type is None:
        return True
    return any(isinstance(n, ast.Name) and n.id in _CATCHES for n in ast.walk(handler.type))
