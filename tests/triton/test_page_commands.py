"""The guides' commands that call servers run as printed, except for addresses and durations."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.tools.cli.app import app
from support.certificates import Certificates
from support.openai_endpoint import OpenAIEndpoint
from support.quickstarts import OF_CLIENTS, all_run_by
from support.shipped_pair import PAIR
from support.triton_server import Server

PROMPTS = ("def read_lines(path):\n", "class Queue:\n")
CHAT_TEMPLATE = "{% for m in messages %}# {{ m.content }}\n{% endfor %}"
COMMANDS = [command[1:] for _, command in all_run_by(OF_CLIENTS)]
# Options that the test appends, as measurements with the documented sizes take minutes.
SHORTER = {
    "bench": ["--requests", "2", "--output-tokens", "8", "--warmup", "0"],
    "verify": ["--limit", "4", "--max-tokens", "8"],
}


@pytest.fixture(scope="module")
def openai_urls(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Yield the URLs of two endpoints of one server."""
    template = tmp_path_factory.mktemp("template") / "chat_template.jinja"
    template.write_text(CHAT_TEMPLATE, "utf-8")
    options = ["--chat-template", str(template)]
    with (
        OpenAIEndpoint(server.url, PAIR / "target", options) as one,
        OpenAIEndpoint(server.url, PAIR / "target", options) as other,
    ):
        yield one.url, other.url


@pytest.fixture
def addresses(
    server: Server, older_server: Server, encrypted: Server, openai_urls: tuple[str, str]
) -> dict[str, str]:
    """Return a test server for each address in the guides; the older release is the draft."""
    return {
        "localhost:8000": f"127.0.0.1:{server.http_port}",
        "localhost:8001": server.url,
        "localhost:8002": f"127.0.0.1:{server.metrics_port}",
        "localhost:9001": older_server.url,
        "NAME.NAMESPACE.svc:8001": server.url,
        "NAME-draft.NAMESPACE.svc:8001": older_server.url,
        "pair.models.svc:8001": encrypted.url,
        "--tls localhost:8001": encrypted.url,
        "http://localhost:9000/v1": openai_urls[0],
        "http://eagle3:9000/v1": openai_urls[0],
        "http://plain:9000/v1": openai_urls[1],
    }


@pytest.fixture
def files(made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the files that the commands read."""
    lines = (json.dumps({"prompt": prompt, "max_tokens": 8}) for prompt in PROMPTS)
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "in.csv").write_text("5,17,9\n", "ascii")
    (tmp_path / "target").symlink_to(PAIR / "target")
    shutil.copy(made.authority, tmp_path / "ca.crt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoked(command: list[str]) -> str:
    """Run a command, which must succeed, and return its standard output."""
    result = CliRunner().invoke(app, command, input=PROMPTS[0])
    assert result.exit_code == 0, (command, result.output)
    assert result.stdout.strip(), command
    return result.stdout


def addressed(command: list[str], addresses: dict[str, str]) -> list[str]:
    """Return the command with addresses of test servers, also for the default address."""
    tls = "--tls " if "--tls" in command else ""
    replaced = [addresses.get(f"{tls}{word}", addresses.get(word, word)) for word in command]
    if replaced != command and not {"--url", "--target"}.isdisjoint(command):
        return replaced
    http = command[0] == "bench" or "http" in command
    if command[0] == "speculate":
        return [
            *replaced,
            "--target",
            addresses["localhost:8001"],
            "--draft",
            addresses["localhost:9001"],
        ]
    return [*replaced, "--url", addresses["localhost:8000" if http else "localhost:8001"]]


def test_every_address_of_the_guides_has_a_server(addresses: dict[str, str]) -> None:
    for command in COMMANDS:
        for option in ("--url", "--target", "--draft-url", "--baseline-url", "--metrics"):
            if option in command:
                assert command[command.index(option) + 1] in addresses, command


def test_commands_run_as_printed(addresses: dict[str, str], files: Path) -> None:
    expected = invoked(addressed(["infer", "--tokens-file", "in.csv"], addresses))
    (files / "out.csv").write_text(expected, "utf-8")
    assert {command[0] for command in COMMANDS} >= {"generate", "infer", "speculate", *SHORTER}
    for command in COMMANDS:
        invoked([*addressed(command, addresses), *SHORTER.get(command[0], [])])
    assert "<svg" in (files / "report.html").read_text("utf-8")
    assert (files / "report.csv").is_file()
