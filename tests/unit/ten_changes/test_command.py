"""Adding a command to `specdec` touches two production files."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import Scratch

COMMAND = '''"""`specdec echo`."""

import typer


def echo(text: str) -> None:
    """Print a text."""
    typer.echo(text)
'''
PROGRAM = """
from typer.testing import CliRunner
from specdec.tools.cli.app import app

assert "Print a text." in CliRunner().invoke(app, ["--help"]).output
print(CliRunner().invoke(app, ["echo", "hello"]).output)
"""


@pytest.mark.slow
def test_new_command_touches_two_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.write("tools/cli/echo.py", COMMAND)
    row = '    "echo": Command("specdec.tools.cli.echo:echo", "Print a text."),\n'
    first = "COMMANDS = {\n"
    scratch.edit("tools/cli/app.py", (first, first + row))

    assert scratch.run(PROGRAM).strip() == "hello"
    assert scratch.touched() == [
        "operator/specdec/tools/cli/app.py",
        "operator/specdec/tools/cli/echo.py",
    ]
