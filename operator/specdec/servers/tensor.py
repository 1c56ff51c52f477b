"""A tensor as plain values, which clients turn into an array, protobuf or JSON."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    Attributes:
        dtype: Triton's name, like INT32; BYTES has texts.
        shape: its dimensions.
        values: in row-major order.
    """

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]

    @property
    def plain(self) -> Any:
        """The values as JSON has them: one value, or a list of several."""
        return self.values[0] if len(self.values) == 1 else list(self.values)

    def batched(self) -> "Tensor":
        """The tensor with a batch dimension of 1."""
        return replace(self, shape=(1, *self.shape))


def tensor(dtype: str, *values: Any) -> Tensor:
    """A tensor of shape [n]."""
    return Tensor(dtype, (len(values),), values)
