"""The list of commands: what it says is what the commands say, and it loads none of them."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from specdec.cli.app import COMMANDS, app

# What only a command that runs may load.
HEAVY = (
    "grpc",
    "tritonclient",
    "numpy",
    "kubernetes",
    "kopf",
    "specdec.api.model",
    "specdec.pipeline.decide",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_commands_help(name: str) -> None:
    module, _, attribute = COMMANDS[name].home.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        assert COMMANDS[name].summary == found.info.help
    else:
        assert COMMANDS[name].summary == (inspect.getdoc(found) or "").splitlines()[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    if name != "dataset":
        assert f"specdec {name} " in " ".join(result.stdout.split())


def test_every_command_is_listed() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(f" {name} " in result.stdout for name in COMMANDS)


def test_an_unknown_command_suggests_one() -> None:
    result = CliRunner().invoke(app, ["verfy"])
    assert result.exit_code == 2
    assert "verify" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom specdec.cli.app import app\n"
        f"try:\n    app({[*arguments, '--help']!r})\n"
        "except SystemExit:\n"
        f"    sys.exit(', '.join(n for n in {HEAVY!r} if n in sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
