"""The functions and operators of CEL, and of Kubernetes' extensions, that the CRD's rules use.

Each takes evaluated arguments; the target of a method is the first one.
"""

import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from inspect import signature
from typing import Any

from specdec.api.quantity import amount
from specdec.pipeline.validation.cel.patterns import compiled
from specdec.pipeline.validation.cel.values import (
    NO_OVERLOAD,
    EvaluationError,
    OptionalValue,
    equal,
    in_range,
    kind,
)

Function = Callable[..., Any]
# The API server's form of a quantity; an exponent needs digits.
_QUANTITY = re.compile(
    r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?"
)


@cache
def arity(function: str) -> int | None:
    """The number of arguments of a function; None if this package lacks it."""
    known = _FUNCTIONS.get(function)
    return None if known is None else len(signature(known).parameters)


def call(function: str, arguments: list[Any]) -> Any:
    """The result of a function.

    Raises:
        EvaluationError: the function has no result for the arguments.
    """
    return _FUNCTIONS[function](*arguments)


def _not(value: Any) -> bool:
    return not _of(value, bool)


def _negate(value: Any) -> Any:
    return in_range(-_number(value))


def _size(value: Any) -> int:
    return len(_of(value, str, list, dict))


def _contains(text: Any, part: Any) -> bool:
    return bool(_of(part, str) in _of(text, str))


def _starts_with(text: Any, part: Any) -> bool:
    return bool(_of(text, str).startswith(_of(part, str)))


def _matches(text: Any, pattern: Any) -> bool:
    return compiled(_of(pattern, str)).search(_of(text, str)) is not None


def _in(value: Any, items: Any) -> bool:
    if isinstance(items, dict):
        return isinstance(value, str) and value in items
    return any(equal(value, item) for item in _of(items, list))


def _equal(left: Any, right: Any) -> bool:
    return equal(left, right)


def _unequal(left: Any, right: Any) -> bool:
    return not equal(left, right)


def _or_value(value: Any, default: Any) -> Any:
    optional = _of(value, OptionalValue)
    return optional.value if optional.present else default


def _has_value(value: Any) -> bool:
    return bool(_of(value, OptionalValue).present)


def _is_quantity(text: Any) -> bool:
    return _QUANTITY.fullmatch(_of(text, str)) is not None


def _quantity(text: Any) -> Decimal:
    if not _is_quantity(text):
        raise EvaluationError(f"quantities must match the regular expression: {text}")
    return _of(amount(text), Decimal)  # type: ignore[no-any-return]


def _as_float(quantity: Any) -> float:
    return float(_of(quantity, Decimal))


def _is_greater(quantity: Any, other: Any) -> bool:
    return bool(_of(quantity, Decimal) > _of(other, Decimal))


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    return in_range(_number(left) + _number(right))


def _subtract(left: Any, right: Any) -> Any:
    return in_range(_number(left) - _number(right))


def _multiply(left: Any, right: Any) -> Any:
    return in_range(_number(left) * _number(right))


def _divide(left: Any, right: Any) -> Any:
    if isinstance(_number(left), float) or isinstance(_number(right), float):
        return left / right if right else math.copysign(math.inf, left) if left else math.nan
    if right == 0:
        raise EvaluationError("division by zero")
    # The quotient is rounded towards zero.
    return in_range(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(_number(left), float) or isinstance(_number(right), float):
        raise EvaluationError(NO_OVERLOAD)
    if right == 0:
        raise EvaluationError("modulus by zero")
    # The remainder has the sign of the dividend.
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _compared(compare: Callable[[Any, Any], bool]) -> Function:
    def result(left: Any, right: Any) -> bool:
        if kind(left) != kind(right) or kind(left) not in ("bool", "number", "str"):
            raise EvaluationError(NO_OVERLOAD)
        return compare(left, right)

    return result


def _of(value: Any, *kinds: type) -> Any:
    """The value; raises EvaluationError if it is of none of the types."""
    if not isinstance(value, kinds):
        raise EvaluationError(NO_OVERLOAD)
    return value


def _number(value: Any) -> Any:
    if kind(value) != "number":
        raise EvaluationError(NO_OVERLOAD)
    return value


_FUNCTIONS: dict[str, Function] = {
    "!": _not,
    "negate": _negate,
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "==": _equal,
    "!=": _unequal,
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "in": _in,
    "size": _size,
    "contains": _contains,
    "startsWith": _starts_with,
    "matches": _matches,
    "orValue": _or_value,
    "hasValue": _has_value,
    "isQuantity": _is_quantity,
    "quantity": _quantity,
    "asApproximateFloat": _as_float,
    "isGreaterThan": _is_greater,
}
