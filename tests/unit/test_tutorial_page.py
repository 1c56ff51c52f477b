"""The command line's output in the tutorial equals its real output."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specdec.tools.cli.app import app
from support.documents import definition
from support.quickstarts import ROOT
from support.shipped_pair import PAIR

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
SAMPLE = "manifests/samples/reference-draft-target.yaml"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the tutorial asks the reader to write."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    sample = (ROOT / SAMPLE).read_text("utf-8")
    (tmp_path / "longer.yaml").write_text(sample.replace("draftTokens: 4", "draftTokens: 6"))
    for folder, role, changes in (
        ("target", "target", {}),
        ("other", "draft", {"vocab_size": 512}),
    ):
        (tmp_path / folder).mkdir()
        config = json.loads((PAIR / role / "config.json").read_text("utf-8"))
        (tmp_path / folder / "config.json").write_text(json.dumps(config | changes))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(beginning: str) -> tuple[Result, str]:
    """Run the page's command with this beginning; return its result and the next text block."""
    match = re.search(
        rf"(?ms)^({re.escape(beginning)}[^\n]*)\n```\n\n```[^\n]*text[^\n]*\n(.*?)^```$", PAGE
    )
    assert match, beginning
    return CliRunner().invoke(app, shlex.split(match[1])[1:]), match[2]


@pytest.mark.usefixtures("desk")
def test_verdict_is_the_first_line_of_the_plan() -> None:
    result, shown = run(f"specdec plan -f {SAMPLE}")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == shown.strip()


@pytest.mark.usefixtures("desk")
def test_change_of_the_draft_length_rebuilds_nothing() -> None:
    result, shown = run("specdec plan -f longer.yaml --diff")
    assert result.exit_code == 0
    printed, expected = (
        re.sub(r"\b[0-9a-f]{16}\b", "HASH", text) for text in (result.stdout, shown)
    )
    assert printed == expected
    assert printed.count("HASH") == 2


@pytest.mark.usefixtures("desk")
def test_bad_pair_is_refused() -> None:
    result, shown = run(f"specdec plan -f {SAMPLE} --checkpoint")
    assert result.exit_code == 1
    assert result.stderr == shown


def test_tables_have_the_columns_of_the_definition() -> None:
    (version,) = definition()["spec"]["versions"]
    columns = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
    heads = re.findall(r"^NAME .*$", PAGE, re.MULTILINE)
    assert len(heads) == 3
    for head in heads:
        assert head.split() == ["NAME", *(name.upper() for name in columns)]
