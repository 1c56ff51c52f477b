"""The commands of a dry run, which run in the process of the test."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from specdec.tools.cli.app import app
from specdec.tools.dry_run.resource import load
from support.golden_cases import SAMPLES

ROOT = Path(__file__).resolve().parents[3]
DRAFT_TARGET = ROOT / "manifests" / "samples" / "reference-draft-target.yaml"
Json = dict[str, Any]
Write = Callable[..., Path]
# The config.json of a public checkpoint, reduced to the fields that a plan reads.
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0},
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def plan_json(*arguments: object) -> Json:
    result = run("plan", *arguments, "--json")
    assert result.exit_code == 0, result.output
    value: Json = json.loads(result.stdout)
    return value


@cache
def sample_plan(sample: str) -> Json:
    """Return the plan of a sample; tests share the object and must not change it."""
    return plan_json("-f", SAMPLES[sample])


@cache
def sample_text(sample: str) -> str:
    """Return the text that `specdec plan` prints into a pipe for a sample."""
    return run("plan", "-f", SAMPLES[sample]).stdout


def write_sample(folder: Path, sample: str, **changed: Any) -> Path:
    """Write a sample with changed fields of its spec (`a__b` is field b of a; None removes it)."""
    body = load(str(SAMPLES[sample]))
    for field, value in changed.items():
        *parents, last = field.split("__")
        part = body["spec"]
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
        if value is None:
            del part[last]
    path = folder / f"{sample}.yaml"
    path.write_text(yaml.safe_dump(body))
    return path
