"""Build one engine directory: `python3 build_engine.py --plan PLAN.json` (`-` reads stdin).

The plan is one JSON object; its `backend` selects the builder. Reference (`reference_build`)
writes the engine itself and needs NumPy. TensorRT (`tensorrt_build`) runs the converters and
`trtllm-build` of the server's image, and needs only Python. Both write `manifest.json` into the
output directory, and give the directory its final name when it is complete.

With `--image EXPECTED.json` the TensorRT builder first compares the image with its release.

Progress goes to stdout (`progress phase=convert percent=40`), the result as one JSON object into
the termination message: `{"engine": {...}}` or `{"error": {"reason", "message"}}`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from failure import BuildError, Cancelled, explain

# Imported on demand: the image of one backend lacks packages that the other's module imports.
_BUILDERS = {"Reference": "reference_build", "TensorRT": "tensorrt_build"}

_stopped = threading.Event()


def _read_object(source: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError) as error:
        raise BuildError("PlanInvalid", f"{source} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise BuildError("PlanInvalid", f"{source} is not a JSON object")
    return data


def _build(plan: Mapping[str, Any], image: str | None) -> dict[str, Any]:
    backend = plan.get("backend")
    if not isinstance(backend, str) or backend not in _BUILDERS:
        raise BuildError(
            "PlanInvalid", f"backend: {backend!r} must be one of {', '.join(_BUILDERS)}"
        )
    expected = () if image is None else (_read_object(image),)
    engine: dict[str, Any] = importlib.import_module(_BUILDERS[backend]).build(plan, *expected)
    return engine


def _report(message: Mapping[str, Any]) -> None:
    """Write the termination message; outside a pod this fails with a warning."""
    path = os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log")
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(message, file)
    except OSError as error:
        print(f"no termination message written: {error}", file=sys.stderr)


def _cancel(signum: int, frame: FrameType | None) -> None:
    # The flag is needed because interrupted C code may replace this exception by an error of its
    # own. A second signal must not interrupt the cleanup.
    if not _stopped.is_set():
        _stopped.set()
        raise Cancelled


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the engine is in place, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(description="Build one engine directory")
    parser.add_argument("--plan", required=True, help="the plan's JSON file, or - for stdin")
    parser.add_argument("--image", help="JSON file with what the image has to hold")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _cancel)
    try:
        _report({"engine": _build(_read_object(options.plan), options.image)})
    except (Exception, Cancelled) as error:  # noqa: BLE001 - each becomes a reason and a sentence
        cause = explain(error, stopped=_stopped.is_set())
        _report({"error": {"reason": cause.reason, "message": str(cause)}})
        print(f"build_engine.py: {cause}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
