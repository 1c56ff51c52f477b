"""Write the engine file that the Reference backend maps; its layout: reference_engine/weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint import Floats

MAGIC = b"SPECDEC1"
ALIGN = 64


def write(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Iterable[tuple[str, Floats]],
    dtype: str,
    progress: Callable[[float], None],
) -> None:
    """Write arrays one after another, so that memory holds one at a time.

    Args:
        path: the file, which must not exist.
        shapes: every array's shape, in the order in which `arrays` yields them.
        dtype: `float32` or `float16`, how they are stored.
        progress: called with the share of bytes written, 0 to 1.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    header, total = _header(shapes, kind)
    with path.open("xb") as file:
        file.write(header)
        for name, array in arrays:
            if array.shape != shapes[name]:
                raise ValueError(f"{name} is {array.shape}, announced as {shapes[name]}")
            file.write(b"\0" * (-file.tell() % ALIGN))
            # Not tofile: its error lacks the error number of a full volume.
            file.write(np.ascontiguousarray(array, kind).data)
            progress(file.tell() / total)
        file.flush()
        os.fsync(file.fileno())


def _header(shapes: Mapping[str, tuple[int, ...]], kind: np.dtype[Any]) -> tuple[bytes, int]:
    """Lay the arrays out. The header's length is fixed first, since offsets depend on it."""
    entries = {
        name: {"dtype": kind.name, "shape": list(shape), "offset": 2**62}
        for name, shape in shapes.items()
    }
    size = len(json.dumps(entries).encode())
    position = 16 + size
    for name, shape in shapes.items():
        position += -position % ALIGN
        entries[name]["offset"] = position
        position += int(np.prod(shape)) * kind.itemsize
    text = json.dumps(entries).encode().ljust(size)
    return MAGIC + size.to_bytes(8, "little") + text, position
