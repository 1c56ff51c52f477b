"""The library of the BLS: compiled when its sources change, of known packages, or a sentence."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import tomllib
from pathlib import Path

import pytest

import library
from specdec.triton import library as packaged

ROOT = Path(__file__).parents[2]
CARGO = """#!/bin/sh
echo "$@" >> {log}
case "$1" in build) mkdir -p "$CARGO_TARGET_DIR/release"
  cat src/lib.rs > "$CARGO_TARGET_DIR/release/libtriton_specdec.so";; esac
"""
REFUSING = """#!/bin/sh
echo "   Compiling half" >&2
echo "error[E0425]: cannot find value `x`" >&2
echo "  --> src/lib.rs:1" >&2
exit 101
"""


class Checkout:
    """A crate and a package, with a cargo that only copies."""

    def __init__(self, root: Path) -> None:
        self.crate, self.packaged, self.home = root / "crate", root / "package", root / "home"
        self.log = root / "log"
        (self.crate / "src" / "triton").mkdir(parents=True)
        for name in ("Cargo.toml", "Cargo.lock", "src/lib.rs", "src/triton/abi.rs"):
            (self.crate / name).write_text(name)
        self.cargo(CARGO.format(log=self.log))

    def cargo(self, script: str) -> None:
        program = self.home / "bin" / "cargo"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)

    def build(self) -> Path:
        return library.build(lambda _: None, self.crate, self.packaged)

    @property
    def builds(self) -> int:
        text = self.log.read_text() if self.log.exists() else ""
        return text.count("build --release --locked")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    # Not on PATH: as after rustup, in a shell that has not read its profile.
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("library.shutil.which", at_home(tmp_path))
    return Checkout(tmp_path)


def at_home(root: Path) -> object:
    """`which` on a machine whose only cargo is that of CARGO_HOME."""
    program = root / "home" / "bin" / "cargo"
    return lambda _, path=None: str(program) if path and program.exists() else None


def test_it_is_compiled_once_for_its_sources(checkout: Checkout) -> None:
    folder = checkout.build()
    assert (folder / library.FILE).read_text() == "src/lib.rs"
    assert (folder / library.SOURCE).read_text() == f"{library.digest(checkout.crate)}\n"
    checkout.build()
    assert checkout.builds == 1
    (checkout.crate / "src" / "lib.rs").write_text("changed")
    checkout.build()
    assert (folder / library.FILE).read_text() == "changed"
    assert checkout.builds == 2
    assert sorted(path.name for path in folder.iterdir()) == [library.FILE, library.SOURCE]


@pytest.mark.parametrize("lost", [library.FILE, library.SOURCE])
def test_half_of_it_is_none_of_it(checkout: Checkout, lost: str) -> None:
    (checkout.build() / lost).unlink()
    assert (checkout.build() / lost).is_file()
    assert checkout.builds == 2


def test_who_comes_at_once_waits_for_the_first(checkout: Checkout) -> None:
    threads = [threading.Thread(target=checkout.build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checkout.builds == 1


@pytest.mark.parametrize(
    "name", ["Cargo.toml", "Cargo.lock", "src/lib.rs", "src/triton/abi.rs", "src/new.rs"]
)
def test_every_source_counts(checkout: Checkout, name: str) -> None:
    before = library.digest(checkout.crate)
    (checkout.crate / name).write_text("changed")
    assert library.digest(checkout.crate) != before


def test_its_tests_do_not_count(checkout: Checkout) -> None:
    before = library.digest(checkout.crate)
    (checkout.crate / "tests").mkdir()
    (checkout.crate / "tests" / "task.rs").write_text("")
    assert library.digest(checkout.crate) == before


def test_without_cargo_a_sentence_and_exit_code_2(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout.home / "bin" / "cargo").unlink()
    monkeypatch.setattr(library.build, "__defaults__", (checkout.crate, checkout.packaged))
    assert library.main() == 2
    told = capsys.readouterr().err
    assert told.startswith(f"library: no cargo on PATH or in {checkout.home / 'bin'}")
    assert "install Rust" in told
    assert "Traceback" not in told


def test_what_does_not_compile_is_told_and_leaves_nothing(checkout: Checkout) -> None:
    checkout.cargo(REFUSING)
    with pytest.raises(library.LibraryError, match=r"(?s)E0425.*src/lib\.rs:1") as told:
        checkout.build()
    assert "Compiling" not in str(told.value)
    assert not checkout.packaged.exists()


def test_the_image_s_digest_is_ours() -> None:
    """The operator of an image names what its own package carries, however it was compiled."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"&& (find Cargo.toml .*) > /libtriton_specdec.source", text)
    done = subprocess.run(
        ["sh", "-c", line], cwd=library.CRATE, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == library.digest()


def test_the_package_has_the_library_of_this_tree() -> None:
    assert packaged.source() == library.digest()
    assert packaged.folder() == library.PACKAGED
    assert (library.FILE, library.SOURCE) == (packaged.FILE, packaged.SOURCE)
    found = packaged.folder() / packaged.FILE
    assert found.read_bytes()[:4] == b"\x7fELF"
    assert os.access(found, os.R_OK)


def test_every_package_is_of_the_canonical_index() -> None:
    lock = tomllib.loads((library.CRATE / "Cargo.lock").read_text())
    sources = {package["source"] for package in lock["package"] if "source" in package}
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}
