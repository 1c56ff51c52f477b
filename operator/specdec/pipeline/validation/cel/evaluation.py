"""Compute the value of an expression."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from specdec.pipeline.validation.cel import functions
from specdec.pipeline.validation.cel.syntax import (
    Access,
    Call,
    Choice,
    Has,
    Items,
    Literal,
    Logic,
    Macro,
    Name,
    Node,
)
from specdec.pipeline.validation.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    EvaluationError,
    OptionalValue,
    require_bool,
)

Scope = Mapping[str, Any]


def evaluate(node: Node, scope: Scope) -> Any:
    """The value of an expression with these variables, as plain JSON values.

    Raises:
        EvaluationError: the expression has no value, for example because a field is missing.
    """
    return _EVALUATORS[type(node)](node, scope)


def _literal(node: Literal, _: Scope) -> Any:
    return node.value


def _name(node: Name, scope: Scope) -> Any:
    if node.name not in scope:
        raise EvaluationError(f"no such attribute(s): {node.name}")
    return scope[node.name]


def _items(node: Items, scope: Scope) -> list[Any]:
    return [evaluate(item, scope) for item in node.items]


def _call(node: Call, scope: Scope) -> Any:
    return functions.call(node.function, [evaluate(item, scope) for item in node.arguments])


def _choice(node: Choice, scope: Scope) -> Any:
    return evaluate(node.yes if require_bool(evaluate(node.test, scope)) else node.no, scope)


def _has(node: Has, scope: Scope) -> bool:
    operand = evaluate(node.operand, scope)
    if isinstance(operand, OptionalValue):
        operand = operand.value if operand.present else {}
    if not isinstance(operand, dict):
        raise EvaluationError(NO_OVERLOAD)
    return node.field in operand


def _access(node: Access, scope: Scope) -> Any:
    operand, key = evaluate(node.operand, scope), evaluate(node.key, scope)
    optional = node.optional
    # A field of an optional value is optional itself.
    if isinstance(operand, OptionalValue):
        if not operand.present:
            return NOTHING
        operand, optional = operand.value, True
    member = _member(operand, key)
    if optional:
        return member
    if not member.present:
        missing = "no such key" if isinstance(key, str) else "index out of bounds"
        raise EvaluationError(f"{missing}: {key}")
    return member.value


def _member(operand: Any, key: Any) -> OptionalValue:
    """The value at a key or index; none if there is no such key."""
    if isinstance(operand, dict) and isinstance(key, str):
        return OptionalValue(True, operand[key]) if key in operand else NOTHING
    if isinstance(operand, list) and isinstance(key, int) and not isinstance(key, bool):
        return OptionalValue(True, operand[key]) if 0 <= key < len(operand) else NOTHING
    raise EvaluationError(NO_OVERLOAD)


def _logic(node: Logic, scope: Scope) -> bool:
    """The first decisive value; an error counts only if neither side is decisive."""
    sides = (node.left, node.right)
    tests = (partial(evaluate, side, scope) for side in sides)
    return node.decisive if _decided(tests, node.decisive) else not node.decisive


def _macro(node: Macro, scope: Scope) -> bool:
    operand = evaluate(node.operand, scope)
    if not isinstance(operand, list | dict):
        raise EvaluationError(NO_OVERLOAD)
    tests = (partial(evaluate, node.test, {**scope, node.variable: item}) for item in operand)
    if node.macro == "exists_one":
        return sum(require_bool(test()) for test in tests) == 1
    decisive = node.macro == "exists"
    return decisive if _decided(tests, decisive) else not decisive


def _decided(tests: Iterator[Callable[[], Any]], decisive: bool) -> bool:
    """Whether any test has the decisive value; otherwise an error of a test is raised."""
    failure: EvaluationError | None = None
    for test in tests:
        try:
            if require_bool(test()) is decisive:
                return True
        except EvaluationError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return False


_EVALUATORS: dict[type[Node], Callable[[Any, Scope], Any]] = {
    Literal: _literal,
    Name: _name,
    Items: _items,
    Call: _call,
    Choice: _choice,
    Has: _has,
    Access: _access,
    Logic: _logic,
    Macro: _macro,
}
