"""Kubernetes quantities as numbers."""

from decimal import Decimal, InvalidOperation
from typing import Any

_SUFFIXES = {
    **{s: Decimal(10) ** (3 * i) for i, s in enumerate(("n", "u", "m", "", "k", "M"), -3)},
    **{s: Decimal(10) ** (3 * i) for i, s in enumerate(("G", "T", "P", "E"), 3)},
    **{s: Decimal(1024) ** i for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def amount(value: Any) -> Decimal | str:
    """A Kubernetes quantity as a number; anything else unchanged as text."""
    text = str(value)
    digits = text.rstrip("numkKMGTPEi")
    try:
        return Decimal(digits) * _SUFFIXES[text[len(digits) :]]
    except (InvalidOperation, KeyError):
        return text
