"""Commands of README and guides: what needs no cluster is run, all others have their test."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specdec import __version__
from specdec.cli.app import app
from support.quickstarts import GUIDES, OFFLINE, ON_A_SERVER, ROOT, RUN_BY, all_run_by, typed

SAMPLE = "manifests/samples/reference-draft-target.yaml"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the manifests and a changed resource, as somebody who follows a guide has."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    body = yaml.safe_load((ROOT / SAMPLE).read_text())
    body["spec"]["speculation"]["maxDraftTokens"] = 6
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(body))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_needs_no_cluster_is_done(desk: Path) -> None:
    commands = all_run_by(OFFLINE)
    assert len(commands) > 15
    for document, command in commands:
        shutil.rmtree(desk / "rendered", ignore_errors=True)
        result = CliRunner().invoke(app, command[1:])
        assert result.exit_code == 0, f"{document.name}: {' '.join(command)}: {result.output}"
        if command[1] == "render":
            assert list((desk / "rendered").rglob("config.pbtxt"))
        if "--diff" in command:
            assert "rebuild target: maxDraftTokens 8 -> 6" in result.output


def test_every_command_is_run_by_a_test() -> None:
    for document in GUIDES:
        for command in typed(document):
            place = RUN_BY.get((command[0], command[1]))
            assert place, f"{document.name}: no test runs {' '.join(command)}"


def test_the_tests_named_do_run_them() -> None:
    for (_, verb), place in RUN_BY.items():
        if place in (OFFLINE, ON_A_SERVER):
            continue  # they run what is written
        text = (ROOT / place).read_text()
        assert verb.partition("-")[0] in text, f"{place}: {verb}"
    used = {(command[0], command[1]) for d in GUIDES for command in typed(d)}
    assert set(RUN_BY) == used, "a command that no guide has"


def test_make_images_builds_and_pushes_both_for_a_registry() -> None:
    argv = ["make", "--silent", "images", "BUILDER=echo"]
    (command,) = [c for c in typed(ROOT / "docs" / "install.md") if c[:2] == ["make", "images"]]
    done = subprocess.run(
        [*argv, *command[2:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [f"registry.example.com/specdec/{n}:{__version__}" for n in ("operator", "reference")]
    assert done.stdout.splitlines() == [
        line
        for name in names
        for line in (
            f"build --target {name.rpartition('/')[2].partition(':')[0]} --tag {name} .",
            f"push {name}",
        )
    ]
    without = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "make: set REGISTRY to a registry and organisation" in without.stderr
