"""Values that JSON does not have, and comparison as CEL defines it."""

from dataclasses import dataclass
from typing import Any

NO_OVERLOAD = "no such overload"
_LARGEST = 2**63


class EvaluationError(Exception):
    """The expression has no value; the message is that of the API server."""


@dataclass(frozen=True)
class OptionalValue:
    """The result of `.?` and `[?]`: a value, or none."""

    present: bool
    value: Any = None


NOTHING = OptionalValue(present=False)


def kind(value: Any) -> str:
    """The type of a value: integers and floats are both number."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal; values of different types are not, so `true` is not 1."""
    if kind(left) != kind(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def require_bool(value: Any) -> bool:
    """The value; raises EvaluationError if it is not a bool."""
    if not isinstance(value, bool):
        raise EvaluationError(NO_OVERLOAD)
    return value


def in_range(value: float) -> float:
    """The number; raises EvaluationError for an integer of more than 64 bits."""
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise EvaluationError("integer overflow")
    return value
