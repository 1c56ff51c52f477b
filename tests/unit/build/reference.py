"""Run Reference builds in the same way as their Job."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.reference_engines import BUILD


def run(
    data: dict[str, Any] | str, tmp_path: Path, *options: str
) -> tuple[int, dict[str, Any], str]:
    """Run a build with options of Python; return (exit status, termination message, output)."""
    log = tmp_path / "termination.json"
    log.write_text("", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, *options, str(BUILD), "--plan", "-"],
        input=data if isinstance(data, str) else json.dumps(data),
        text=True,
        capture_output=True,
        check=False,
        env={"SPECDEC_TERMINATION_LOG": str(log)},
    )
    assert "Traceback" not in result.stderr
    return result.returncode, json.loads(log.read_text(encoding="utf-8")), result.stdout


def refused(data: dict[str, Any] | str, tmp_path: Path, *options: str) -> dict[str, str]:
    """Run a build that must fail and leave no files, and return its error."""
    status, message, _ = run(data, tmp_path, *options)
    assert status == 1
    engines = tmp_path / "engines"
    assert not engines.exists() or list(engines.iterdir()) == []
    error: dict[str, str] = message["error"]
    assert "\n" not in error["message"]
    return error
