"""Read tensor names and shapes from the headers of weight files, and verify the files' lengths.

`inspection` and `artifact_inspection` call it. Pickled files are parsed and never executed.
"""

import json
import math
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.reasons import FetchReason
from specdec.jobs.result import JobError

# A safetensors file starts with the length of its header. No valid header is longer than this.
_HEADER_LIMIT = 100 << 20
_PICKLE_LIMIT = 16 << 20

Shapes = Mapping[str, tuple[int, ...]]


def shapes(folder: Path, index: Mapping[str, Any] | None) -> Shapes:
    """The shape of every tensor, from safetensors headers that match the length of their files.

    `index` is the content of `model.safetensors.index.json`, or None.

    Raises:
        JobError: CheckpointCorrupt: no weights, a missing shard, a truncated or damaged file.
    """
    names = {path.name for path in folder.glob("*.safetensors")}
    if index is not None:
        shards = _shards(index)
        missing = sorted(shards - names)
        if missing:
            raise corrupt(
                f"{missing[0]} is missing, which is one of {len(shards)} files in the index"
            )
        names = shards
    if not names:
        raise corrupt("it has no .safetensors file; convert its weights to safetensors")
    result: dict[str, tuple[int, ...]] = {}
    for name in sorted(names):
        result |= _header(folder / name)
    return result


def _shards(index: Mapping[str, Any]) -> set[str]:
    """The files that an index lists."""
    listed = index.get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(n, str) for n in listed.values()):
        raise corrupt("its index has no valid weight_map")
    return set(listed.values())


def parameters(tensors: Shapes) -> int:
    """The number of parameters in the tensors."""
    return sum(math.prod(shape) for shape in tensors.values())


def pickled_names(path: Path) -> frozenset[str]:
    """The strings in a pickled weight file, which include its tensor names; nothing is executed.

    Raises:
        JobError: CheckpointCorrupt if it is no such file.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            name = next(n for n in packed.namelist() if n.endswith("data.pkl"))
            if packed.getinfo(name).file_size > _PICKLE_LIMIT:
                raise corrupt(f"data.pkl in {path.name} exceeds {_PICKLE_LIMIT >> 20} MiB")
            text = packed.read(name)
        strings = [value for _, value, _ in pickletools.genops(text) if isinstance(value, str)]
    except (zipfile.BadZipFile, StopIteration, ValueError, KeyError, EOFError) as error:
        raise corrupt(
            f"{path.name} is no weight file ({type(error).__name__}); save it as .safetensors"
        ) from error
    return frozenset(strings)


def corrupt(problem: str) -> JobError:
    """The error for missing, damaged or invalid files."""
    return JobError(
        FetchReason.CHECKPOINT_CORRUPT, f"the checkpoint is incomplete or damaged: {problem}"
    )


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    length = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= min(_HEADER_LIMIT, length - 8):
            raise corrupt(f"{path.name} ({length} bytes) has no safetensors header")
        text = file.read(size)
    try:
        header = json.loads(text)
        tensors = {name: t for name, t in header.items() if name != "__metadata__"}
        ends = [int(t["data_offsets"][1]) for t in tensors.values()]
        header_shapes = {name: tuple(int(n) for n in t["shape"]) for name, t in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        cause = type(error).__name__
        raise corrupt(f"the header of {path.name} cannot be read ({cause})") from error
    expected = 8 + size + max(ends, default=0)
    if length != expected:
        raise corrupt(f"{path.name} has {length} bytes, and its header states {expected}")
    return header_shapes
