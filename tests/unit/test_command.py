"""The list of commands matches the commands, and does not import their modules."""

import inspect
import re
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from specdec.tools.cli import options
from specdec.tools.cli.app import COMMANDS, app

# Modules that are imported only when a command runs.
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
def test_summary_is_the_first_line_of_the_commands_help(name: str) -> None:
    module, _, attribute = COMMANDS[name].location.partition(":")
    command = getattr(import_module(module), attribute)
    if isinstance(command, typer.Typer):
        assert COMMANDS[name].summary == command.info.help
    else:
        assert COMMANDS[name].summary == (inspect.getdoc(command) or "").splitlines()[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    if name not in ("dataset", "image"):
        assert f"specdec {name} " in " ".join(result.stdout.split())


def test_every_command_is_listed() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(f" {name} " in result.stdout for name in COMMANDS)


def test_unknown_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(app, ["verfy"])
    assert result.exit_code == 2
    assert "verify" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom specdec.tools.cli.app import app\n"
        f"try:\n    app({[*arguments, '--help']!r})\n"
        "except SystemExit:\n"
        f"    sys.exit(', '.join(n for n in {HEAVY!r} if n in sys.modules) or None)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(("command", "protocol"), [("bench", "http"), ("generate", "grpc")])
def test_help_names_the_port_of_the_default_protocol(command: str, protocol: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    (default, other, alternative) = re.findall(
        r"default localhost:(\d+), (\d+) for\s+(\w+)", " ".join(shown.split())
    )[0]
    assert f"[default: {protocol}]" in shown
    both = {p: options.address({"url": None, "protocol": p}) for p in options.Protocol}
    assert f"localhost:{default}" == both[options.Protocol(protocol)]
    assert f"localhost:{other}" == both[options.Protocol(alternative)]
    assert alternative != protocol
