"""Build one engine directory: `python3 build_engine.py --plan PLAN.json` (`-` reads stdin).

The plan is one JSON object: backend, role, checkpoint, output, key, dtype, limits, maxDraftTokens,
speculativeDecodingMode, lookahead, version. The engine is written into a temporary sibling of
`output`, `manifest.json` last, and renamed when complete: a killed build leaves nothing under the
final name, and the next one removes what it left. Needs Python 3 and NumPy only.

Progress goes to stdout (`progress phase=convert percent=40`), the result as one JSON object into
the termination message: `{"engine": {...}}` or `{"error": {"reason", "message"}}`.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import convert
import engine_file
from checkpoint import BuildError, Checkpoint
from plan import Plan, engine_config


class Cancelled(BaseException):
    """SIGTERM arrived; a BaseException so that no handler of errors takes it for one."""


_stopped = threading.Event()


def build(plan: Plan) -> dict[str, Any]:
    """Build the engine, or find it complete.

    Returns:
        the termination message's `engine` object.

    Raises:
        BuildError: the checkpoint is unusable.
        OSError: the volume is full or not writable.
    """
    manifest = plan.output / "manifest.json"
    if manifest.is_file():
        _say("done", 100, f"engine {plan.key} is already complete")
        return _summary(plan, json.loads(manifest.read_text(encoding="utf-8")))
    plan.output.parent.mkdir(parents=True, exist_ok=True)
    for stale in plan.output.parent.glob(f".{plan.output.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(
        tempfile.mkdtemp(prefix=f".{plan.output.name}.", suffix=".tmp", dir=plan.output.parent)
    )
    try:
        written = _fill(plan, scratch)
        scratch.chmod(0o755)
        if plan.output.exists():  # without a manifest: not one of ours, or damaged
            shutil.rmtree(plan.output)
        scratch.rename(plan.output)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _say("done", 100, f"engine {plan.key} built in {written['seconds']} s")
    return _summary(plan, written)


def _fill(plan: Plan, scratch: Path) -> dict[str, Any]:
    start = time.monotonic()
    _say("read", 0, f"checkpoint {plan.checkpoint}")
    checkpoint = Checkpoint(plan.checkpoint)
    shape = convert.Shape.read(checkpoint.config)
    config = engine_config(plan, checkpoint.config, shape)
    _say("convert", 0, f"{checkpoint.nbytes >> 20} MiB of weights")
    engine_file.write(
        scratch / "rank0.engine",
        convert.shapes(shape),
        convert.arrays(checkpoint, shape),
        plan.dtype,
        lambda share: _say("convert", int(100 * share)),
    )
    (scratch / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _say("manifest", 0)
    files = {name: _describe(scratch / name) for name in ("config.json", "rank0.engine")}
    manifest = {
        "key": plan.key,
        "role": plan.role,
        "files": files,
        "seconds": round(time.monotonic() - start, 2),
        "builder": builder_hash(),
        "vocabSize": shape.vocab,
    }
    (scratch / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def builder_hash() -> str:
    """Hash the build's own source; part of what decides whether engines are equal."""
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


def _summary(plan: Plan, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": manifest["key"],
        "bytes": sum(int(entry["bytes"]) for entry in manifest["files"].values()),
        "seconds": manifest["seconds"],
        "maxDraftLen": plan.max_draft_len,
        "vocabSize": manifest["vocabSize"],
        "config": {
            "maxBatchSize": plan.max_batch_size,
            "maxSeqLen": plan.max_seq_len,
            "dtype": plan.dtype,
            "speculativeDecodingMode": plan.mode,
        },
    }


def _say(phase: str, percent: int, note: str = "") -> None:
    print(f"progress phase={phase} percent={percent} {note}".rstrip(), flush=True)


def _explain(error: BaseException) -> BuildError:
    """Give an error of the system the reason and the mend of a build."""
    if isinstance(error, BuildError):
        return error
    if _stopped.is_set():
        return BuildError("Cancelled", "the build was stopped before it was complete")
    if isinstance(error, MemoryError):
        return BuildError("OutOfMemory", "not enough memory for one layer; raise the Job's limit")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildError(
            "VolumeFull", "the model volume is full; enlarge the claim or free space on it"
        )
    if isinstance(error, OSError):
        return BuildError("VolumeUnusable", f"the build could not read or write: {error}")
    return BuildError("Internal", f"the build failed: {type(error).__name__}: {error}")


def _read_plan(source: str) -> Plan:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError) as error:
        raise BuildError("PlanInvalid", f"the build plan cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise BuildError("PlanInvalid", "the build plan is not a JSON object")
    return Plan.read(data)


def _report(message: Mapping[str, Any]) -> None:
    """Leave the result where the kubelet looks for it; outside a pod there is no such file."""
    path = os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log")
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(message, file)
    except OSError as error:
        print(f"no termination message written: {error}", file=sys.stderr)


def _cancel(signum: int, frame: FrameType | None) -> None:
    # Interrupted C code may wrap what is raised here into an error of its own, hence the flag; and
    # a second signal must not interrupt the cleaning up.
    if not _stopped.is_set():
        _stopped.set()
        raise Cancelled


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the engine is in place, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(description="Build one engine directory")
    parser.add_argument("--plan", required=True, help="the plan's JSON file, or - for stdin")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _cancel)
    try:
        _report({"engine": build(_read_plan(options.plan))})
    except (Exception, Cancelled) as error:  # noqa: BLE001 - each becomes a reason and a sentence
        cause = _explain(error)
        _report({"error": {"reason": cause.reason, "message": str(cause)}})
        print(f"build_engine.py: {cause}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
