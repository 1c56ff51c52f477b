"""Values of a checkpoint's JSON files, believed only when they have the right shape."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.jobs.weights import corrupt

Config = Mapping[str, Any]
# The largest is a tokenizer with a vocabulary of hundreds of thousands: some 35 MB. The Job's
# memory holds a few times that as Python objects.
_LIMIT_BYTES = 64 << 20
# A status holds 64 bits.
_MOST = 2**63


def read(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object; raises JobError (CheckpointCorrupt) when it is missing or none."""
    if not (folder / name).is_file():
        raise corrupt(f"it has no {name}")
    try:
        value = json.loads(content(folder / name))
    except (ValueError, RecursionError) as error:
        raise corrupt(f"{name} is not JSON ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise corrupt(f"{name} is not a JSON object")
    return value


def content(path: Path) -> bytes:
    """The bytes of a small file; raises JobError (CheckpointCorrupt) when it is none."""
    size = path.stat().st_size
    if size > _LIMIT_BYTES:
        raise corrupt(f"{path.name} has {size} bytes, and no model's has more than {_LIMIT_BYTES}")
    return path.read_bytes()


def optional(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object that need not be there; empty then."""
    return read(folder, name) if (folder / name).is_file() else {}


def part(config: Config, key: str) -> dict[str, Any]:
    """An object inside an object; empty when it is none."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def number(config: Config, key: str, default: int | None = None) -> int:
    """A size that every configuration states; only small plain values go into a result."""
    value = config.get(key, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MOST:
        raise corrupt(f"{key} in config.json is {str(value)[:40]!r}, not a positive number")
    return value


def whole(config: Config, key: str) -> int | None:
    """A whole number that may be absent; one that no status can hold is as good as absent."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MOST else None


def word(value: object) -> str | None:
    """A short text that may be absent."""
    return value[:80] if isinstance(value, str) and value else None


def architecture(config: Config) -> str:
    """The first architecture that a configuration states."""
    stated = config.get("architectures")
    first = str(stated[0])[:80] if isinstance(stated, list) and stated else ""
    return first if first.isidentifier() else "(none)"
