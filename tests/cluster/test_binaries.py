"""The pins of the programs, the paths of their binaries, and their builds."""

import re
import shutil
from pathlib import Path

import pytest

from cluster import binaries
from cluster.errors import ClusterError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / "go"
    shutil.copytree(binaries.MODULES, copy)
    monkeypatch.setattr(binaries, "MODULES", copy)
    monkeypatch.setattr(binaries, "_digest", binaries._digest.__wrapped__)
    return copy


def test_changed_pin_changes_only_its_binaries(module: Path) -> None:
    before = {name: binaries.path(name) for name in binaries.PROGRAMS}
    pins = module / "helm" / "go.mod"
    pins.write_text(pins.read_text() + "\n")
    changed = {name for name in binaries.PROGRAMS if binaries.path(name) != before[name]}
    assert changed == {"helm"}


def test_every_package_is_pinned() -> None:
    for program in binaries.PROGRAMS.values():
        folder = binaries.MODULES / program.module
        if program.package.startswith("."):
            assert list((folder / program.package).glob("*.go")), program
        else:
            assert f'"{program.package}"' in (folder / "tools.go").read_text(), program


def test_all_kubernetes_modules_have_the_same_release() -> None:
    pins = (binaries.MODULES / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{binaries.KUBERNETES}" in pins
    minor = binaries.KUBERNETES.partition(".")[2]
    replaced = re.findall(r"=> k8s\.io/\S+ (v\S+)", pins)
    assert len(replaced) > 25
    assert set(replaced) == {f"v0.{minor}"}


def test_failed_build_reports_the_error_and_leaves_no_file(module: Path) -> None:
    (module / "local" / "pause" / "main.go").write_text("package main\nfunc main() { oops() }\n")
    with pytest.raises(ClusterError, match=r"Building pause failed: .*undefined: oops"):
        binaries.ensure(["pause"], lambda _: None)
    assert list(binaries.path("pause").parent.iterdir()) == []


@pytest.mark.slow
def test_second_build_compiles_nothing(module: Path) -> None:
    lines: list[str] = []
    binaries.ensure(["pause", "keys"], lines.append)
    assert [line.split(" in ")[0] for line in lines] == [
        "[1/2] building pause",
        "[1/2] built pause",
        "[2/2] building keys",
        "[2/2] built keys",
    ]
    binaries.ensure(["pause", "keys"], lines.append)
    assert len(lines) == 4
    assert binaries.path("pause").stat().st_mode & 0o111
