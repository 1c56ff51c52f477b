"""Commands of README and guides: run those that need no cluster; all others have a test."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specdec import __version__
from specdec.tools.cli.app import app
from support.image_tree import RELEASES, write
from support.quickstarts import (
    OFFLINE,
    ROOT,
    all_run_by,
    typed,
)
from support.shipped_pair import PAIR

SAMPLE = "manifests/samples/reference-draft-target.yaml"
SHARED = "manifests/samples/tensorrt-draft-target-shared.yaml"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of a guide's reader: manifests, resources and models."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    body = yaml.safe_load((ROOT / SAMPLE).read_text())
    body["spec"]["speculation"]["maxDraftTokens"] = 6
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(body))
    sample = (ROOT / SAMPLE).read_text()
    (tmp_path / "longer.yaml").write_text(sample.replace("draftTokens: 4", "draftTokens: 6"))
    shutil.copy(ROOT / SAMPLE, tmp_path / "pair.yaml")
    shared = yaml.safe_load((ROOT / SHARED).read_text())
    listed = {"apiVersion": "v1", "kind": "List", "items": [shared]}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(listed))
    for role in ("target", "draft"):
        (tmp_path / role).mkdir()
        shutil.copy(PAIR / role / "config.json", tmp_path / role)
    write(tmp_path / "rootfs", RELEASES[-1])
    (tmp_path / "HumanEval.jsonl").write_text(json.dumps({"task_id": "1", "prompt": "a"}) + "\n")
    alpaca = [{"instruction": "a", "input": "b", "output": "c d"}]
    (tmp_path / "alpaca.json").write_text(json.dumps(alpaca))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_needs_no_cluster_is_done(desk: Path) -> None:
    commands = [c for c in all_run_by(OFFLINE) if c[1][0] == "specdec"]
    assert len(commands) > 25
    for document, command in commands:
        shutil.rmtree(desk / "rendered", ignore_errors=True)
        arguments, file = split(command)
        result = CliRunner().invoke(app, arguments[1:], input="one\ntwo\n")
        assert result.exit_code == 0, f"{document.name}: {' '.join(command)}: {result.output}"
        if file:
            (desk / file[0]).write_text(result.stdout)
        if command[1] == "render":
            assert list((desk / "rendered").rglob("config.pbtxt"))
        if "changed.yaml" in command and "--diff" in command:
            assert "rebuild target: maxDraftTokens 8 -> 6" in result.output


def split(command: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments, and a list with the output file if the command redirects to one."""
    end = command.index(">") if ">" in command else len(command)
    return command[:end], command[end + 1 :]


@pytest.mark.slow
def test_certificate_of_the_guide_is_valid(desk: Path) -> None:
    commands = [c for _, c in all_run_by(OFFLINE) if c[0] in ("openssl", "echo")]
    assert len(commands) == 4
    for command in commands:
        arguments, file = split(command)
        done = subprocess.run(arguments, cwd=desk, capture_output=True, text=True, check=True)
        if file:
            (desk / file[0]).write_text(done.stdout)
    check = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname"]
    for host in ("reference-tls.default.svc", "localhost"):
        subprocess.run([*check, host, "tls.crt"], cwd=desk, capture_output=True, check=True)


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
