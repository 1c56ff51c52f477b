"""Read JSON files of a checkpoint, with a check of every value's type and range.

The modules that inspect artifacts call it. A file from an untrusted source raises
`JobError(CheckpointCorrupt)` or yields a default. Sizes and numbers are limited to what the Job's
memory and a status can hold.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.images.serving.check_volume import named
from specdec.jobs.weights import corrupt

Config = Mapping[str, Any]
# The largest file is a tokenizer with a vocabulary of hundreds of thousands: some 35 MB. Python
# objects take a few times that, which the Job's memory limit allows for.
_LIMIT_BYTES = 64 << 20
# Integers in a Kubernetes object have 64 bits.
INTEGER_LIMIT = 2**63


def read(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file; raises JobError (CheckpointCorrupt) if missing or no object."""
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
    """The bytes of a file; raises JobError (CheckpointCorrupt) if it exceeds the size limit."""
    size = path.stat().st_size
    if size > _LIMIT_BYTES:
        raise corrupt(f"{path.name} has {size} bytes, which exceeds the limit of {_LIMIT_BYTES}")
    with named(path):
        return path.read_bytes()


def optional(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file; empty if there is no such file."""
    return read(folder, name) if (folder / name).is_file() else {}


def section(config: Config, key: str) -> dict[str, Any]:
    """An object inside an object; empty if the value is absent or no object."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def number(config: Config, key: str, default: int | None = None) -> int:
    """A positive integer, or `default` if the value is absent.

    Raises JobError (CheckpointCorrupt) for any other value, or if both are absent.
    """
    value = config.get(key, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < INTEGER_LIMIT:
        raise corrupt(f"{key} in config.json is {str(value)[:40]!r}, not a positive number")
    return value


def optional_number(config: Config, key: str) -> int | None:
    """An optional integer; None if it is absent, negative or above 64 bits."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < INTEGER_LIMIT else None


def short_text(value: object) -> str | None:
    """The first 80 characters of a string; None if the value is empty or no string."""
    return value[:80] if isinstance(value, str) and value else None


def architecture(config: Config) -> str:
    """The first of the architectures in config.json; `(none)` if there is no valid name."""
    stated = config.get("architectures")
    first = str(stated[0])[:80] if isinstance(stated, list) and stated else ""
    return first if first.isidentifier() else "(none)"


def draft_length(model: Config, build: Config) -> int:
    """The number of draft tokens of a step that an engine is built for.

    `trtllm-build` writes the number into one of three places of config.json: usually into the
    build section, with heads into the model section. With ReDrafter, the model section has beams
    and tokens per beam.
    """
    beams, per_beam, own, built = (
        optional_number(part, name) or 0
        for part, name in (
            (model, "redrafter_num_beams"),
            (model, "redrafter_draft_len_per_beam"),
            (model, "max_draft_len"),
            (build, "max_draft_len"),
        )
    )
    return max(beams * per_beam, own, built)
