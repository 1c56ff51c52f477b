"""Read values from the input tensors of a Triton request, as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RequestError

Ids = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]


class Call:
    """Input tensors of a call, batch dimension first, converted once for all of its rows.

    Attributes:
        arrays: the tensors by name; empty ones count as absent.
        rows: how many there are.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._scalars: dict[str, list[Any]] = {}
        self._ids: dict[str, Ids] = {}
        self.arrays = {name: array for name, array in arrays.items() if array.size}
        self.rows = self.arrays["input_ids"].shape[0] if "input_ids" in self.arrays else 1

    def array(self, name: str, row: int) -> npt.NDArray[Any] | None:
        """Return the row of a tensor, without the batch dimension, or None where it is absent."""
        array = self.arrays.get(name)
        if array is None:
            return None
        if row >= array.shape[0]:
            raise RequestError(f"{name} has {array.shape[0]} rows, fewer than input_ids")
        return np.asarray(array[row])

    def scalar(self, name: str, row: int) -> Any:
        """Return a row's one value, or None where the tensor is absent."""
        if name not in self.arrays:
            return None
        values = self._scalars.get(name)
        if values is None:
            array = self.arrays[name]
            if array.size != array.shape[0]:
                size = array.size // array.shape[0]
                raise RequestError(f"{name} must hold one value a row, not {size}")
            values = self._scalars[name] = array.reshape(-1).tolist()
        if row >= len(values):
            raise RequestError(f"{name} has {len(values)} rows, fewer than input_ids")
        return values[row]

    def ids(self, name: str, row: int, vocabulary: int) -> Ids:
        """Return a row of token ids, empty where the tensor is absent."""
        table = self._ids.get(name)
        if table is None or row >= table.shape[0]:
            array = self.array(name, row)
            if array is None:
                return np.empty(0, np.int64)
            whole = self.arrays[name]
            table = whole.reshape(whole.shape[0], -1).astype(np.int64)
            if table.min() < 0 or table.max() >= vocabulary:
                return _checked(name, table[row], vocabulary)
            self._ids[name] = table
        ids: Ids = table[row]
        return ids


def _checked(name: str, ids: Ids, vocabulary: int) -> Ids:
    wrong = (ids < 0) | (ids >= vocabulary)
    if wrong.any():
        raise RequestError(
            f"{name} holds {int(ids[wrong][0])}, outside the vocabulary of {vocabulary}"
        )
    return ids


class Inputs:
    """One row of a call. Every error names the tensor."""

    def __init__(self, call: Call, row: int) -> None:
        self._call = call
        self._row = row

    def has(self, name: str) -> bool:
        """Whether the tensor was sent, and is not empty."""
        return name in self._call.arrays

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """Return the row of a tensor, without the batch dimension, or None where it is absent."""
        return self._call.array(name, self._row)

    def scalar(self, name: str) -> Any:
        """Return the one value of a tensor, or None where it is absent."""
        return self._call.scalar(name, self._row)

    def ids(self, name: str, vocabulary: int) -> Ids:
        """Return token ids, empty where the tensor is absent."""
        return self._call.ids(name, self._row, vocabulary)

    def integer(self, name: str, default: int) -> int:
        """Return a whole number."""
        value = self.scalar(name)
        return default if value is None else int(value)

    def number(self, name: str, default: float) -> float:
        """Return a decimal number that is finite."""
        value = self.scalar(name)
        if value is None:
            return default
        if not np.isfinite(value):
            raise RequestError(f"{name} must be finite, not {value}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.scalar(name)
        return default if value is None else bool(value)
