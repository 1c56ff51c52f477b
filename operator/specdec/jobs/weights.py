"""Read tensor names and shapes from the headers of weight files, and verify the files' lengths.

`inspection` and `artifact_inspection` call it. Pickled files are parsed and never executed.
"""

import errno
import json
import math
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.reasons import FetchReason
from specdec.images.serving.check_volume import named
from specdec.jobs.result import JobError

# A safetensors file starts with the length of its header. No valid header is longer than this.
_HEADER_LIMIT = 100 << 20
_PICKLE_LIMIT = 16 << 20
# Integers in a Kubernetes object have 64 bits.
_INTEGER_LIMIT = 2**63

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
    """The number of parameters in the tensors.

    Raises:
        JobError: CheckpointCorrupt if the number has more than 64 bits.
    """
    total = sum(math.prod(shape) for shape in tensors.values())
    if total >= _INTEGER_LIMIT:
        raise corrupt("the shapes in its safetensors headers are larger than any model")
    return total


def pickled_names(path: Path) -> frozenset[str]:
    """The strings in a pickled weight file, which include its tensor names; nothing is executed.

    Raises:
        JobError: CheckpointCorrupt if it is no such file.
    """
    try:
        return _pickled_strings(path)
    except JobError:
        raise
    except Exception as error:
        # `zipfile` and `pickletools` raise errors of many types on damaged, encrypted or unusual
        # files. An invalid position in the file is EINVAL; other errors of the system are not the
        # file's fault.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise corrupt(
            f"{path.name} is no weight file that can be read ({type(error).__name__}); save it as "
            ".safetensors"
        ) from error


def _pickled_strings(path: Path) -> frozenset[str]:
    with zipfile.ZipFile(path) as packed:
        name = next(n for n in packed.namelist() if n.endswith("data.pkl"))
        if packed.getinfo(name).file_size > _PICKLE_LIMIT:
            raise corrupt(f"data.pkl in {path.name} exceeds {_PICKLE_LIMIT >> 20} MiB")
        text = packed.read(name)
    return frozenset(v for _, v, _ in pickletools.genops(text) if isinstance(v, str))


def corrupt(problem: str) -> JobError:
    """The error for missing, damaged or invalid files."""
    return JobError(
        FetchReason.CHECKPOINT_CORRUPT, f"the checkpoint is incomplete or damaged: {problem}"
    )


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    length = path.stat().st_size
    with named(path), path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= min(_HEADER_LIMIT, length - 8):
            raise corrupt(f"{path.name} ({length} bytes) has no safetensors header")
        text = file.read(size)
    try:
        header = json.loads(text)
        tensors = {name: t for name, t in header.items() if name != "__metadata__"}
        ends = [_sizes(t["data_offsets"])[1] for t in tensors.values()]
        header_shapes = {name: _sizes(t["shape"]) for name, t in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        cause = type(error).__name__
        raise corrupt(f"the header of {path.name} cannot be read ({cause})") from error
    expected = 8 + size + max(ends, default=0)
    if length != expected:
        raise corrupt(f"{path.name} has {length} bytes, and its header states {expected}")
    return header_shapes


def _sizes(value: Any) -> tuple[int, ...]:
    """A list of sizes or offsets; raises TypeError or ValueError for anything else."""
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise TypeError
    if not all(0 <= item < _INTEGER_LIMIT for item in value):
        raise ValueError
    return tuple(value)
