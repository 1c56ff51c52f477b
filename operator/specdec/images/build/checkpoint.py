"""Read a Hugging Face checkpoint directory; errors name the damaged or unsupported file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from failure import BuildError

Floats = npt.NDArray[np.float32]

_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


def corrupt(path: Path, why: str) -> BuildError:
    """Return the error of a damaged checkpoint file."""
    return BuildError("CheckpointCorrupt", f"{path.name} is damaged: {why}; fetch it again")


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies: its file, its first byte and its kind."""

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]


class Checkpoint:
    """The tensors of a checkpoint directory, one or several safetensors files.

    Read here rather than by the safetensors package, which has no bfloat16 in NumPy.
    """

    def __init__(self, directory: Path) -> None:
        self.config = _read_config(directory)
        self._tensors: dict[str, Stored] = {}
        for path in _files(directory):
            self._tensors.update(_read_header(path))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(
            math.prod(stored.shape) * _DTYPES[stored.dtype].itemsize
            for stored in self._tensors.values()
        )

    def read(self, name: str, *shape: int) -> Floats:
        """Return one tensor in float32.

        Raises:
            BuildError: it is missing, has another shape, or holds no finite numbers.
        """
        stored = self._tensors.get(name)
        if stored is None:
            raise BuildError(
                "CheckpointCorrupt",
                f"tensor {name} is in none of the checkpoint's files; fetch it again",
            )
        if stored.shape != shape:
            raise BuildError(
                "CheckpointCorrupt",
                f"tensor {name} is {list(stored.shape)} but config.json asks for {list(shape)}; "
                "config and weights belong to different models",
            )
        with stored.path.open("rb") as file:
            raw = np.fromfile(
                file, _DTYPES[stored.dtype], count=math.prod(shape), offset=stored.offset
            )
        if stored.dtype == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        array: Floats = raw.reshape(shape).astype(np.float32)
        if not np.isfinite(array).all():
            raise corrupt(stored.path, f"tensor {name} holds values that are not finite")
        return array


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BuildError(
            "CheckpointCorrupt", f"checkpoint {directory} has no config.json; fetch it again"
        ) from None
    except ValueError as error:
        raise corrupt(path, f"it is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise corrupt(path, "it is not a JSON object")
    return config


def _files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return [directory / "model.safetensors"]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise corrupt(index, f"it is not a weight index ({error})") from error
    if any(Path(name).name != name for name in names):
        raise corrupt(index, "it names files outside the checkpoint")
    return [directory / name for name in sorted(names)]


def _read_header(path: Path) -> dict[str, Stored]:
    """Read one safetensors header and compare it with the file's length."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= size - 8:
                raise corrupt(path, "its header is longer than the file")
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise BuildError(
            "CheckpointCorrupt", f"checkpoint file {path.name} is missing; fetch it again"
        ) from None
    except ValueError as error:
        raise corrupt(path, "its header is not JSON") from error
    tensors = {}
    try:
        for name, entry in header.items():
            if name != "__metadata__":
                tensors[name] = _stored(path, entry, 8 + length, size)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise corrupt(path, "its header is not a safetensors header") from error
    return tensors


def _stored(path: Path, entry: Mapping[str, Any], base: int, size: int) -> Stored:
    dtype = str(entry["dtype"])
    if dtype not in _DTYPES:
        raise BuildError(
            "UnsupportedCheckpoint",
            f"{path.name} holds {dtype} tensors; the Reference backend reads "
            f"{', '.join(_DTYPES)}: use the checkpoint before quantization",
        )
    shape = tuple(int(side) for side in entry["shape"])
    begin, end = (int(number) for number in entry["data_offsets"])
    if end - begin != math.prod(shape) * _DTYPES[dtype].itemsize or begin < 0:
        raise corrupt(path, "its header does not add up")
    if base + end > size:
        raise corrupt(path, f"it ends at byte {size}, {base + end - size} bytes too early")
    return Stored(path, base + begin, dtype, shape)
