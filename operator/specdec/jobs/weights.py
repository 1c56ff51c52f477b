"""Weight files by their headers: are they whole, and what tensors do they hold."""

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

# A safetensors file starts with the length of its header; a longer one than this is noise.
_HEADER_LIMIT = 100 << 20
_PICKLE_LIMIT = 16 << 20

Shapes = Mapping[str, tuple[int, ...]]


def shapes(folder: Path, index: Mapping[str, Any] | None) -> Shapes:
    """Shape of every tensor, read from the safetensors headers, held against the files' length.

    `index` is the content of `model.safetensors.index.json` where there is one.

    Raises:
        JobError: CheckpointCorrupt: no weights, a missing shard, a cut or damaged file.
    """
    names = {path.name for path in folder.glob("*.safetensors")}
    if index is not None:
        shards = _shards(index)
        missing = sorted(shards - names)
        if missing:
            raise corrupt(
                f"{missing[0]} is missing, one of {len(shards)} files that the index lists"
            )
        names = shards
    if not names:
        raise corrupt("it has no .safetensors file; convert its weights to safetensors")
    found: dict[str, tuple[int, ...]] = {}
    for name in sorted(names):
        found |= _header(folder / name)
    return found


def _shards(index: Mapping[str, Any]) -> set[str]:
    """The files that an index lists."""
    listed = index.get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(n, str) for n in listed.values()):
        raise corrupt("its index lists no files by tensor")
    return set(listed.values())


def parameters(tensors: Shapes) -> int:
    """How many numbers the tensors hold."""
    return sum(math.prod(shape) for shape in tensors.values())


def pickled_names(path: Path) -> frozenset[str]:
    """The strings in a pickled weight file, tensor names among them; nothing of it is executed.

    Raises:
        JobError: CheckpointCorrupt when it is no such file.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            name = next(n for n in packed.namelist() if n.endswith("data.pkl"))
            if packed.getinfo(name).file_size > _PICKLE_LIMIT:
                raise corrupt(f"the table of contents of {path.name} is larger than any model's")
            text = packed.read(name)
        found = [value for _, value, _ in pickletools.genops(text) if isinstance(value, str)]
    except (zipfile.BadZipFile, StopIteration, ValueError, KeyError, EOFError) as error:
        raise corrupt(
            f"{path.name} is no weight file ({type(error).__name__}); save it as .safetensors"
        ) from error
    return frozenset(found)


def corrupt(what: str) -> JobError:
    """The error of files that are not what they should be."""
    return JobError(FetchReason.CHECKPOINT_CORRUPT, f"the checkpoint is not whole: {what}")


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
        found = {name: tuple(int(n) for n in t["shape"]) for name, t in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        why = type(error).__name__
        raise corrupt(f"the header of {path.name} cannot be read ({why})") from error
    expected = 8 + size + max(ends, default=0)
    if length != expected:
        raise corrupt(f"{path.name} has {length} bytes, and its header speaks of {expected}")
    return found
