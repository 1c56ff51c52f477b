"""The build of the BLS: when it compiles, which packages it uses, and how it fails."""

import os
import re
import subprocess
import threading
import tomllib
from pathlib import Path

import pytest

from specdec.triton import library as packaged
from specdec.triton.library_digest import digest
from support import bls

ROOT = Path(__file__).parents[2]
CARGO = """#!/bin/sh
echo "$@" >> {log}
case "$1" in build) mkdir -p "$CARGO_TARGET_DIR/release"
  cat specdec-bls/src/lib.rs > "$CARGO_TARGET_DIR/release/libtriton_specdec.so";; esac
"""
REFUSING = """#!/bin/sh
echo "   Compiling half" >&2
echo "error[E0425]: cannot find value `x`" >&2
echo "  --> src/lib.rs:1" >&2
exit 101
"""


SOURCES = [
    "Cargo.toml",
    "Cargo.lock",
    "specdec-bls/Cargo.toml",
    "specdec-bls/src/lib.rs",
    "specdec-bls/src/serving/calls.rs",
    "triton/Cargo.toml",
    "triton/src/lib.rs",
    "triton-sys/Cargo.toml",
    "triton-sys/src/lib.rs",
]


REPORT = """\
   Compiling specdec-bls v0.1.0
     Running tests/config.rs (target/release/deps/config-1)

running 1 test
test reads_all ... ok

     Running tests/request/main.rs (target/release/deps/request-1)
test refuses::empty_text ... FAILED

failures:

---- refuses::empty_text stdout ----
thread 'x' panicked at tests/a.rs:1:
left: 1

failures:
    refuses::empty_text
"""


class Checkout:
    """A workspace and a package, with a fake cargo that only copies files."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.packaged, self.home = root / "bls", root / "package", root / "home"
        self.log = root / "log"
        for name in SOURCES:
            file = self.workspace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
        self.cargo(CARGO.format(log=self.log))

    def cargo(self, script: str) -> None:
        program = self.home / "bin" / "cargo"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)

    def build(self) -> Path:
        return bls.build(lambda _: None, self.workspace, self.packaged)

    @property
    def builds(self) -> int:
        text = self.log.read_text() if self.log.exists() else ""
        return text.count("build --release --locked")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    # cargo is not on PATH: a shell after rustup's installation that has not read its profile.
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("support.bls.shutil.which", at_home(tmp_path))
    return Checkout(tmp_path)


def at_home(root: Path) -> object:
    """Return a fake `which` that finds cargo only in the `bin` folder of CARGO_HOME."""
    program = root / "home" / "bin" / "cargo"
    return lambda _, path=None: str(program) if path and program.exists() else None


def test_library_is_compiled_once_for_its_sources(checkout: Checkout) -> None:
    folder = checkout.build()
    assert (folder / bls.FILE).read_text() == "specdec-bls/src/lib.rs"
    assert (folder / bls.SOURCE).read_text() == f"{digest(checkout.workspace)}\n"
    checkout.build()
    assert checkout.builds == 1
    (checkout.workspace / "specdec-bls" / "src" / "lib.rs").write_text("changed")
    checkout.build()
    assert (folder / bls.FILE).read_text() == "changed"
    assert checkout.builds == 2
    assert sorted(path.name for path in folder.iterdir()) == [bls.FILE, bls.SOURCE]


@pytest.mark.parametrize("missing", [bls.FILE, bls.SOURCE])
def test_library_without_its_digest_or_file_is_compiled_again(
    checkout: Checkout, missing: str
) -> None:
    (checkout.build() / missing).unlink()
    assert (checkout.build() / missing).is_file()
    assert checkout.builds == 2


def test_builds_at_the_same_time_compile_once(checkout: Checkout) -> None:
    threads = [threading.Thread(target=checkout.build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checkout.builds == 1


@pytest.mark.parametrize("name", [*SOURCES, "triton/src/new.rs"])
def test_digest_changes_with_every_source(checkout: Checkout, name: str) -> None:
    before = digest(checkout.workspace)
    (checkout.workspace / name).write_text("changed")
    assert digest(checkout.workspace) != before


def test_digest_ignores_tests(checkout: Checkout) -> None:
    before = digest(checkout.workspace)
    (checkout.workspace / "specdec-bls" / "tests").mkdir()
    (checkout.workspace / "specdec-bls" / "tests" / "task.rs").write_text("")
    assert digest(checkout.workspace) == before


def test_missing_cargo_is_one_sentence_and_exit_code_2(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout.home / "bin" / "cargo").unlink()
    monkeypatch.setattr(bls.build, "__defaults__", (checkout.workspace, checkout.packaged))
    assert bls.main() == 2
    message = capsys.readouterr().err
    assert message.startswith(f"bls: no cargo on PATH or in {checkout.home / 'bin'}")
    assert "install Rust" in message
    assert "Traceback" not in message


def test_compile_error_is_reported_and_leaves_nothing(checkout: Checkout) -> None:
    checkout.cargo(REFUSING)
    with pytest.raises(bls.BuildError, match=r"(?s)E0425.*src/lib\.rs:1") as error:
        checkout.build()
    assert "Compiling" not in str(error.value)
    assert not checkout.packaged.exists()


def test_image_has_the_same_digest() -> None:
    """The command in the Dockerfile computes the same digest of the sources as the package."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"&& (find Cargo.toml .*) > /libtriton_specdec.source", text)
    done = subprocess.run(
        ["sh", "-c", line], cwd=bls.WORKSPACE, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(bls.WORKSPACE)


def test_package_has_the_library_of_this_tree() -> None:
    assert packaged.source_digest() == digest(bls.WORKSPACE)
    assert packaged.folder() == bls.PACKAGED
    assert (bls.FILE, bls.SOURCE) == (packaged.FILE, packaged.SOURCE)
    file = packaged.folder() / packaged.FILE
    assert file.read_bytes()[:4] == b"\x7fELF"
    assert os.access(file, os.R_OK)


def test_every_crate_is_from_the_canonical_index() -> None:
    lock = tomllib.loads((bls.WORKSPACE / "Cargo.lock").read_text())
    sources = {package["source"] for package in lock["package"] if "source" in package}
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}


def test_image_has_the_compiler_of_the_workspace() -> None:
    pinned = tomllib.loads((bls.WORKSPACE / "rust-toolchain.toml").read_text())
    channel = pinned["toolchain"]["channel"]
    text = (ROOT / "Dockerfile").read_text()
    assert f"FROM rust:{channel}-slim-bookworm" in text
    assert f"ENV RUSTUP_TOOLCHAIN={channel}\n" in text


def test_report_of_cargo_is_read_test_by_test() -> None:
    tests = bls._parse_tests(REPORT)
    assert [(test.name, test.passed) for test in tests] == [
        ("config::reads_all", True),
        ("main::refuses::empty_text", False),
    ]
    assert tests[1].output == "thread 'x' panicked at tests/a.rs:1:\nleft: 1"
