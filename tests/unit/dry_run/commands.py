"""The commands of a dry run, called in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from specdec.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
DRAFT_TARGET = ROOT / "manifests" / "samples" / "reference-draft-target.yaml"
Json = dict[str, Any]
Write = Callable[..., Path]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def plan_json(*arguments: object) -> Json:
    result = run("plan", *arguments, "--json")
    assert result.exit_code == 0, result.output
    value: Json = json.loads(result.stdout)
    return value
