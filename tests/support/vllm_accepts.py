"""Asks an installed vLLM whether it accepts arguments, and how it resolves them.

No server starts. All cases of a call run in one process, about ten seconds of a processor and 1 GB
of memory.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import vllm_accepts_program
from support.vllm_wheel import Installation

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Case:
    """Arguments of `AsyncEngineArgs` by name, or a command line of the OpenAI server.

    `files` are the files that the case names, path -> text. They are written to a temporary
    folder, and their paths are replaced in the arguments, the command and the files. A checkpoint
    needs its `config.json` only.
    """

    arguments: Mapping[str, Any] | None = None
    command: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted:
    """vLLM accepts a case.

    `values` are the plain values of vLLM's configuration by part, such as `speculative_config` and
    `parallel_config`; `options` are those of a command line.
    """

    values: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """vLLM refuses a case; `error` has the exception and its message."""

    error: str


def accepts(
    installation: Installation, cases: Sequence[Case], folder: Path, gpus: int = 8
) -> list[Accepted | Refused]:
    """Return vLLM's result for each case.

    Args:
        installation: the version.
        cases: what to check.
        folder: an empty folder for files.
        gpus: the number of simulated H100 GPUs, or 0 for vLLM's CPU platform.

    Raises:
        AssertionError: the process failed; the message has the end of its output.
    """
    bodies = [_written(case, folder / str(number)) for number, case in enumerate(cases)]
    done = subprocess.run(
        [str(installation.python), str(vllm_accepts_program.__file__)],
        input=json.dumps({"gpus": gpus, "cases": bodies}),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        cwd=folder,
        env={
            **os.environ,
            **installation.environment(folder / "caches"),
            "PYTHONPATH": "",
            "VLLM_LOGGING_LEVEL": "ERROR",
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout.splitlines()[-1])
    return [
        Refused(result["error"])
        if "error" in result
        else Accepted(result["values"], result.get("options", {}))
        for result in results
    ]


def _written(case: Case, folder: Path) -> dict[str, Any]:
    """Write the files of a case; return the case with their paths."""
    # The longest first, because a path may begin with another one.
    roots = sorted({str(Path(path).parent) for path in case.files}, key=len, reverse=True)

    def moved(text: str) -> str:
        for root in roots:
            text = text.replace(root, str(folder / root.lstrip("/").replace("/", "_")))
        return text

    for path, text in case.files.items():
        file = Path(moved(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(moved(text), "utf-8")
    body = {"command": list(case.command)} if case.command else {"arguments": case.arguments}
    result: dict[str, Any] = json.loads(moved(json.dumps(body)))
    return result
