"""The `manifest.json` of a finished engine directory, and the Job's progress and result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def report_progress(phase: str, percent: int, note: str = "") -> None:
    """Print one progress line, `percent` of 0 to 100; the operator reads the last one."""
    print(f"progress phase={phase} percent={percent} {note}".rstrip(), flush=True)


def complete(output: Path) -> dict[str, Any] | None:
    """Read the manifest of an engine; None unless the engine is complete."""
    path = output / MANIFEST
    if not path.is_file():
        return None
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest


def write_manifest(
    folder: Path, key: str, role: str, names: Iterable[str], seconds: float, vocab: int
) -> dict[str, Any]:
    """Describe the engine's files in `manifest.json`, the last file of an engine directory."""
    manifest = {
        "key": key,
        "role": role,
        "files": {name: _describe(folder / name) for name in names},
        "seconds": round(seconds, 2),
        "builder": builder_hash(),
        "vocabSize": vocab,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def summary(
    manifest: Mapping[str, Any], max_draft_len: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the termination message's `engine` object."""
    return {
        "key": manifest["key"],
        "bytes": sum(int(entry["bytes"]) for entry in manifest["files"].values()),
        "seconds": manifest["seconds"],
        "maxDraftLen": max_draft_len,
        "vocabSize": manifest["vocabSize"],
        "config": dict(config),
    }


def builder_hash() -> str:
    """Hash the build's own source, for the manifest; this hash is no part of an engine's key."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).resolve().parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            "bytes": path.stat().st_size,
        }
