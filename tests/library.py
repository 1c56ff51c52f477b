"""The library of the BLS, compiled where its sources changed: `python -m library`.

It goes into the package (`specdec.triton.library`), with the digest of what it was made from.
"""

import hashlib
import os
import shutil
import subprocess
import sys
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
    # Of all checkouts: they share what is compiled of other crates, and the library's place.
    compiled = folders.cache() / "speculation"
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


def _compiled(cargo: Path, crate: Path, target: Path) -> Path:
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "PATH": f"{cargo.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    # Another checkout's would count as this one's: its file has the same name.
    clean = ["clean", "--quiet", "--release", "--locked", "--package", "triton_specdec"]
    for arguments in (clean, ["build", "--release", "--locked"]):
        try:
            done = subprocess.run(
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
        if done.returncode != 0:
            raise LibraryError(f"cargo could not compile {FILE}: {_words(done.stderr)}")
    return target / "release" / FILE


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


def main() -> int:
    """Run the command line; 0 when the library is in place, 2 with one sentence when not."""
    try:
        build(report)
    except LibraryError as error:
        print(f"library: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
