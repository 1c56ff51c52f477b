"""The library of the BLS, compiled where its sources changed: `python -m library`.

With `lint` or `fmt`, its sources are checked or formatted.

It goes into the package (`specdec.triton.library`), with the digest of what it was made from.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import folders
from cluster.progress import Say, report

CRATE = Path(__file__).resolve().parents[1] / "operator" / "speculation"
PACKAGED = CRATE.parent / "specdec" / "payload" / "models" / "tensorrt_llm_bls"
FILE = "libtriton_specdec.so"
SOURCE = "libtriton_specdec.source"
# What decides over the library; tests beside it do not.
_ROOTS = ("Cargo.toml", "Cargo.lock", "src")
_SECONDS = 1500.0
_CLIPPY = ["clippy", "--quiet", "--release", "--all-targets", "--locked", "--", "-D", "warnings"]
_LAST_WORDS = 8


class LibraryError(Exception):
    """Why there is no library, in one sentence with the mend."""


def digest(crate: Path = CRATE) -> str:
    """sha256 (hex) over the sources, as the Dockerfile has it from `sha256sum`."""
    names = sorted(
        path.relative_to(crate).as_posix()
        for root in _ROOTS
        for path in (crate / root, *(crate / root).rglob("*"))
        if path.is_file()
    )
    lines = (f"{hashlib.sha256((crate / n).read_bytes()).hexdigest()}  {n}\n" for n in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def build(say: Say, crate: Path = CRATE, packaged: Path = PACKAGED) -> Path:
    """Have the library of these sources in the package; returns the folder that holds it.

    Raises:
        LibraryError: it cannot be compiled here.
    """
    wanted = digest(crate)
    if _is_there(packaged, wanted):
        return packaged
    cargo = _cargo()
    compiled = _target()
    with folders.locked(compiled.with_name("speculation.lock")):
        if not _is_there(packaged, wanted):
            say(f"compiling {FILE}, minutes at the first time")
            _place(_compiled(cargo, crate, compiled), wanted, packaged)
    return packaged


def _is_there(packaged: Path, wanted: str) -> bool:
    source = packaged / SOURCE
    return (
        (packaged / FILE).is_file() and source.is_file() and source.read_text().strip() == wanted
    )


def run_tests(crate: Path = CRATE) -> str:
    """Run the crate's own tests; what cargo says of them, empty when all passed.

    Raises:
        LibraryError: cargo is not there or does not finish.
    """
    return _said(crate, ["test", "--quiet", "--release", "--locked", "--tests"])


def adaptive(crate: Path = CRATE) -> dict[str, list[float]]:
    """What the adaptive draft length does under simulated loads, one number for each.

    Over a grid, speeds in shares of the best fixed length (`of_best`) and of decoding without a
    draft (`of_plain`); shares of the best after a change (`after_load_steps`,
    `after_other_texts`); changes where nothing else does (`changes_a_second`).

    Raises:
        LibraryError: the crate's example cannot be compiled or run here.
    """
    cargo = _cargo()
    compiled = _target()
    arguments = ["run", "--quiet", "--release", "--locked", "--example", "adaptive_grid"]
    with folders.locked(compiled.with_name("speculation.lock")):
        done = _run(cargo, arguments, crate, compiled)
    if done.returncode != 0:
        raise LibraryError(f"cargo could not run adaptive_grid: {_words(done.stderr)}")
    figures: dict[str, list[float]] = json.loads(done.stdout)
    return figures


def _target() -> Path:
    # Of all checkouts: they share what is compiled of other crates, and the library's place.
    return folders.cache() / "speculation"


def _compiled(cargo: Path, crate: Path, target: Path) -> Path:
    done = _run(cargo, ["build", "--release", "--locked"], crate, target)
    if done.returncode != 0:
        raise LibraryError(f"cargo could not compile {FILE}: {_words(done.stderr)}")
    return target / "release" / FILE


def _own(cargo: Path, crate: Path, target: Path) -> None:
    """Remove what another checkout compiled: its library has the same name and would count."""
    owner = target / "checkout"
    if owner.is_file() and owner.read_text() == str(crate):
        return
    owner.unlink(missing_ok=True)
    clean = ["clean", "--quiet", "--release", "--locked", "--package", "triton_specdec"]
    done = _command(cargo, clean, crate, target)
    if done.returncode != 0:
        raise LibraryError(f"cargo could not remove {target}: {_words(done.stderr)}")
    target.mkdir(parents=True, exist_ok=True)
    folders.write(owner, str(crate))


def _run(
    cargo: Path, arguments: list[str], crate: Path, target: Path
) -> subprocess.CompletedProcess[str]:
    _own(cargo, crate, target)
    return _command(cargo, arguments, crate, target)


def _command(
    cargo: Path, arguments: list[str], crate: Path, target: Path
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "PATH": f"{cargo.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    try:
        return subprocess.run(
            [str(cargo), *arguments],
            cwd=crate,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryError(f"{cargo} did not finish: {error}.") from error


def _cargo() -> Path:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"
    # rustup leaves PATH to the shell's profile, which not every shell reads.
    found = shutil.which("cargo") or shutil.which("cargo", path=str(home))
    if found is None:
        raise LibraryError(
            f"no cargo on PATH or in {home}, which compiles {FILE}: install Rust 1.88 or newer, "
            "such as with rustup."
        )
    return Path(found)


def _words(output: str) -> str:
    """The first error with what follows it; without one the end."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if line.startswith("error")), -_LAST_WORDS)
    return "\n".join(lines[first:][:_LAST_WORDS]) or "it says nothing"


def _place(library: Path, wanted: str, packaged: Path) -> None:
    packaged.mkdir(parents=True, exist_ok=True)
    # Whoever is interrupted here leaves no digest of another library.
    (packaged / SOURCE).unlink(missing_ok=True)
    fresh = packaged / f".{FILE}.{os.getpid()}"
    try:
        shutil.copyfile(library, fresh)
        fresh.chmod(0o755)
        fresh.rename(packaged / FILE)
    finally:
        fresh.unlink(missing_ok=True)
    folders.write(packaged / SOURCE, f"{wanted}\n")


def check(crate: Path = CRATE) -> str:
    """What cargo finds in the form and the rules of the crate; empty when nothing.

    Raises:
        LibraryError: cargo is not there or does not finish.
    """
    return _said(crate, ["fmt", "--check"]) or _said(crate, _CLIPPY)


def mend(crate: Path = CRATE) -> str:
    """Format the crate; what cargo cannot read of it, empty when all was formatted.

    Raises:
        LibraryError: cargo is not there or does not finish.
    """
    return _said(crate, ["fmt"])


def _said(crate: Path, arguments: list[str]) -> str:
    cargo, compiled = _cargo(), _target()
    with folders.locked(compiled.with_name("speculation.lock")):
        done = _run(cargo, arguments, crate, compiled)
    if done.returncode == 0:
        return ""
    return f"{done.stdout}\n{done.stderr}".strip() or f"cargo exited with {done.returncode}"


def main(arguments: Sequence[str] = ()) -> int:
    """Run the command line; 2 with one sentence when something cannot be done here."""
    parser = argparse.ArgumentParser(prog="python -m library", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["lint", "fmt"], help="nothing compiles it")
    command, found = parser.parse_args(arguments).command, ""
    try:
        match command:
            case "lint":
                found = check()
            case "fmt":
                found = mend()
            case _:
                build(report)
    except LibraryError as error:
        print(f"library: {error}", file=sys.stderr)
        return 2
    if found:
        print(found, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
