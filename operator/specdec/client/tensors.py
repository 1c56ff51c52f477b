"""Arrays of numpy from the plain tensors of a request."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.servers.chunk import Chunk
from specdec.servers.tensor import Tensor

_TYPES: Mapping[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "FP32": np.float32,
    "INT32": np.int32,
    "UINT64": np.uint64,
}


def array(tensor: Tensor) -> NDArray[Any]:
    """The array of a tensor; texts become UTF-8 bytes."""
    if tensor.dtype == "BYTES":
        return strings(tensor.values).reshape(tensor.shape)
    return np.array(tensor.values, _TYPES[tensor.dtype]).reshape(tensor.shape)


def arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """The arrays of tensors, by name."""
    return {name: array(tensor) for name, tensor in tensors.items()}


def strings(values: Iterable[str]) -> NDArray[Any]:
    """An array [n] of UTF-8 bytes, as Triton's clients send strings."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def with_arrays(chunk: Chunk) -> Chunk:
    """The chunk with arrays as its optional outputs, where a JSON API has lists."""
    if not chunk.optional_outputs:
        return chunk
    outputs = {name: np.asarray(value) for name, value in chunk.optional_outputs.items()}
    return replace(chunk, optional_outputs=outputs)
