"""Pins, and where binaries lie."""

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


def test_a_changed_pin_is_another_binary(module: Path) -> None:
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


def test_every_kubernetes_module_is_of_the_same_release() -> None:
    pins = (binaries.MODULES / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{binaries.KUBERNETES}" in pins
    minor = binaries.KUBERNETES.partition(".")[2]
    replaced = re.findall(r"=> k8s\.io/\S+ (v\S+)", pins)
    assert len(replaced) > 25
    assert set(replaced) == {f"v0.{minor}"}


def test_a_failing_build_leaves_nothing_and_says_why(module: Path) -> None:
    (module / "local" / "pause" / "main.go").write_text("package main\nfunc main() { oops() }\n")
    with pytest.raises(ClusterError, match=r"Building pause failed: .*undefined: oops"):
        binaries.ensure(["pause"], lambda _: None)
    assert list(binaries.path("pause").parent.iterdir()) == []


@pytest.mark.slow
def test_builds_once(module: Path) -> None:
    said: list[str] = []
    binaries.ensure(["pause", "keys"], said.append)
    assert [line.split(" in ")[0] for line in said] == [
        "[1/2] building pause",
        "[1/2] built pause",
        "[2/2] building keys",
        "[2/2] built keys",
    ]
    binaries.ensure(["pause", "keys"], said.append)
    assert len(said) == 4
    assert binaries.path("pause").stat().st_mode & 0o111
