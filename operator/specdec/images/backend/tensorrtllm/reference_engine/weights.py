"""The engine file: folded, blocked weights that are mapped into memory; float32 is not copied.

File layout, little endian: 8 bytes magic, 8 bytes header length, a JSON header
`{name: {"dtype", "shape", "offset"}}` with offsets from the file's start, then the arrays, each
aligned to 64 bytes. The build script writes it; see `images/build/convert.py` for what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import EngineError

MAGIC = b"SPECDEC1"

Floats = npt.NDArray[np.float32]


def load(path: Path) -> dict[str, Floats]:
    """Map an engine file; float16 arrays are widened, float32 ones stay on their pages.

    Raises:
        EngineError: the file is missing, cut short, or was written by something else.
    """
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        if bytes(raw[:8]) != MAGIC:
            raise EngineError(f"{path} was not written by the Reference build; build it again")
        size = int.from_bytes(bytes(raw[8:16]), "little")
        header: dict[str, Any] = json.loads(bytes(raw[16 : 16 + size]))
        return {name: _array(raw, entry) for name, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} cannot be read ({error}); build the engine again") from error


def _array(raw: npt.NDArray[np.uint8], entry: Mapping[str, Any]) -> Floats:
    dtype = np.dtype(entry["dtype"])
    shape = tuple(int(side) for side in entry["shape"])
    start, size = int(entry["offset"]), int(np.prod(shape)) * dtype.itemsize
    if start + size > raw.size:
        raise ValueError(f"it ends before byte {start + size}")
    # A plain view of the mapping: a memmap subclass costs a Python call per operation.
    array = np.asarray(raw)[start : start + size].view(dtype).reshape(shape)
    return array.astype(np.float32, copy=False)
