"""The tutorial shows the answer that a server with the shipped pair gives."""

import re
import shlex

from typer.testing import CliRunner

from specdec.tools.cli.app import app
from support.quickstarts import ROOT
from support.triton_server import Server

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
URL = "specm/reference-draft-target"


def test_both_requests_give_the_text_of_the_page(server: Server) -> None:
    commands = re.findall(r"^specdec generate .*$", PAGE, re.MULTILINE)
    shown = re.findall(r"(?ms)^specdec generate [^\n]*\n```\n\n```text\n(.*?)^```$", PAGE)[0]
    text, counts = shown.rstrip("\n").rsplit("\n", 1)
    drafting, plain = (ask(server, command) for command in commands)
    assert drafting[0].strip() == plain[0].strip() == text.strip()
    assert shape(drafting[1]) == shape(counts)
    (last,) = re.findall(r"The last line is now `(.*)`", PAGE)
    assert shape(plain[1]) == shape(last)


def ask(server: Server, command: str) -> tuple[str, str]:
    """Send a command to the test's server; return the printed text and the line of counts."""
    arguments = shlex.split(command)[1:]
    arguments[arguments.index(URL)] = f"localhost:{server.grpc_port}"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr.strip()


def shape(line: str) -> str:
    """Return a line without its numbers, which differ between runs."""
    return re.sub(r"\d+(\.\d+)?", "N", line)
