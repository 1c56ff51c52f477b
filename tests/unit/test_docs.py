"""Links, files and commands of the documents exist, and the first manifest is accepted."""

import itertools
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.tools.cli.app import app
from support.quickstarts import in_checkout

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(document: Path) -> list[list[str]]:
    """Return the commands of the shell blocks and of the sentences, each split into arguments."""
    body = document.read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", body, re.DOTALL)
        for line in block.splitlines()
    ]
    lines += re.findall(r"`((?:make|kubectl|specdec) [^`\n]+)`", body)
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


@cache
def help_of(*command: str) -> str:
    """Return the output of a command with `--help`."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, command
    return result.output


ALL = [(d, c) for d in DOCUMENTS for c in commands(d)]


def test_there_are_commands_to_check() -> None:
    assert {c[0] for _, c in ALL} >= {"make", "kubectl", "specdec"}


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "make"])
def test_make_targets_exist(document: Path, command: list[str]) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", text("Makefile"), re.MULTILINE))
    named = [word for word in command[1:] if "=" not in word]
    assert named
    assert set(named) <= targets, document


def test_every_make_target_is_listed_by_help() -> None:
    makefile = text("Makefile")
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    listed = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    assert phony - {"help"} == listed - {"help"}


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "kubectl"])
def test_files_given_to_kubectl_exist(document: Path, command: list[str]) -> None:
    for flag, value in itertools.pairwise(command):
        if flag in ("-f", "-k"):
            assert in_checkout(value).exists(), f"{document.name}: {value}"


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "specdec"])
def test_specdec_options_exist(document: Path, command: list[str]) -> None:
    # These commands have subcommands.
    names = command[1:3] if command[1] in ("dataset", "image") else command[1:2]
    printed = help_of(*names)
    for word in command[2:]:
        if word.startswith("--"):
            assert word in printed, f"{document.name}: {word}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_have_targets(document: Path) -> None:
    body = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", body)
    for link in links:
        assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_folders_named_exist(document: Path) -> None:
    body = document.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:operator|crds|manifests|tests|docs|charts)/[\w./-]*)`", body)
    for path in paths:
        assert (ROOT / path).exists(), path


def manifest(page: str) -> str:
    """Return the first YAML block of a page."""
    block = re.search(r"^```yaml\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)
    assert block is not None, f"{page} has no manifest"
    return block[1]


def test_first_manifest_is_accepted(tmp_path: Path) -> None:
    assert manifest("docs/index.md") == manifest("README.md")
    file = tmp_path / "model.yaml"
    file.write_text(manifest("README.md"), "utf-8")
    shown = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "is accepted: DraftTarget on VLLM" in shown.stdout
    assert "Deprecated" not in shown.stdout
