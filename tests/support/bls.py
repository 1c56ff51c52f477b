"""Builds and checks the BLS, the Rust workspace `operator/bls`: `python -m support.bls`.

The library goes into the package (`specdec.triton.library`), beside a digest of its sources, and
is compiled only if that digest has changed. `lint` checks the sources, `fmt` formats them.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import folders
from cluster.progress import Report, report
from specdec.triton.library_digest import CRATES, digest

WORKSPACE = Path(__file__).resolve().parents[2] / "operator" / "bls"
PACKAGED = WORKSPACE.parent / "specdec" / "images" / "models" / "tensorrt_llm_bls"
FILE = "libtriton_specdec.so"
SOURCE = "libtriton_specdec.source"
_TIMEOUT_SECONDS = 1500.0
_CLIPPY = ["clippy", "--quiet", "--release", "--all-targets", "--locked", "--", "-D", "warnings"]
_TESTS = ["test", "--release", "--locked", "--tests", "--no-fail-fast"]
_ERROR_LINES = 8


class BuildError(Exception):
    """The library cannot be built; the message has the reason and the fix."""


@dataclass(frozen=True)
class RustTest:
    """The result of a test of a crate."""

    name: str
    passed: bool
    output: str


def build(report: Report, workspace: Path = WORKSPACE, packaged: Path = PACKAGED) -> Path:
    """Build the library into the package if it is missing or old; return its folder.

    Raises:
        BuildError: the library cannot be compiled here.
    """
    desired = digest(workspace)
    if _is_current(packaged, desired):
        return packaged
    cargo, target = _cargo(), _target()
    with folders.locked(_lock(target)):
        if not _is_current(packaged, desired):
            report(f"compiling {FILE}, which takes minutes the first time")
            _run(cargo, ["build", "--release", "--locked"], workspace, target, f"compile {FILE}")
            _install(target / "release" / FILE, desired, packaged)
    return packaged


def _is_current(packaged: Path, desired: str) -> bool:
    source = packaged / SOURCE
    return (
        (packaged / FILE).is_file() and source.is_file() and source.read_text().strip() == desired
    )


def _install(library: Path, source: str, packaged: Path) -> None:
    packaged.mkdir(parents=True, exist_ok=True)
    # An interrupted build must not leave a library beside the digest of another one.
    (packaged / SOURCE).unlink(missing_ok=True)
    new = packaged / f".{FILE}.{os.getpid()}"
    try:
        shutil.copyfile(library, new)
        new.chmod(0o755)
        new.rename(packaged / FILE)
    finally:
        new.unlink(missing_ok=True)
    folders.write(packaged / SOURCE, f"{source}\n")


def run_tests(workspace: Path = WORKSPACE) -> list[RustTest]:
    """Run the tests of all crates.

    Raises:
        BuildError: the tests cannot be compiled, or cargo does not finish.
    """
    done = _cargo_run(workspace, _TESTS)
    tests = _parse_tests(done.stdout)
    if done.returncode != 0 and all(test.passed for test in tests):
        raise BuildError(f"cargo could not run the tests: {_first_error(done.stdout)}")
    return tests


def _parse_tests(output: str) -> list[RustTest]:
    """Read the report of cargo: a line per test, then the output of those that failed."""
    tests: list[tuple[str, str, str]] = []
    file = ""
    for line in output.splitlines():
        if running := re.match(r"\s+Running (?:\S+/)?(\S+?)(?:\.rs)? \(", line):
            file = running.group(1)
        elif ended := re.match(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED)$", line):
            tests.append((file, ended.group(1), ended.group(2)))
    failures = dict(re.findall(r"(?ms)^---- (\S+) stdout ----\n(.*?)(?=^----|^failures:)", output))
    return [
        RustTest(f"{file}::{name}", result == "ok", failures.get(name, "").strip())
        for file, name, result in tests
    ]


def adaptive(workspace: Path = WORKSPACE) -> dict[str, list[float]]:
    """Run the simulation of the adaptive draft length; return a list of numbers for each figure.

    Over a grid of loads, speeds are relative to the best fixed length (`of_best`) and to
    target-only decoding (`of_plain`). Other figures are speeds after a change (`after_load_steps`,
    `after_other_texts`), and changes of the length under constant load (`changes_a_second`).

    Raises:
        BuildError: the example cannot be compiled or run here.
    """
    example = ["--package", "specdec-bls", "--example", "adaptive_grid"]
    done = _cargo_run(workspace, ["run", "--quiet", "--release", "--locked", *example])
    if done.returncode != 0:
        raise BuildError(f"cargo could not run adaptive_grid: {_first_error(done.stdout)}")
    figures: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def lookup_costs(texts: Path, workspace: Path = WORKSPACE) -> list[Any]:
    """Measure what lookups cost in the texts of a file, a JSON list of lists of token ids.

    The result has for each text: `microseconds` of every token, `candidates` and `bytes_a_token`.

    Raises:
        BuildError: the example cannot be compiled or run here.
    """
    example = ["--package", "specdec-bls", "--example", "lookup_cost"]
    run = ["run", "--quiet", "--release", "--locked", *example, "--", str(texts)]
    done = _cargo_run(workspace, run)
    if done.returncode != 0:
        raise BuildError(f"cargo could not run lookup_cost: {_first_error(done.stdout)}")
    costs: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return costs


def simulated_engine(workspace: Path = WORKSPACE) -> Path:
    """Build the backend that simulates engines, if its sources have changed; return its library.

    Raises:
        BuildError: the example cannot be compiled here.
    """
    example = ["--package", "specdec-bls", "--example", "simulated_engine"]
    done = _cargo_run(workspace, ["build", "--release", "--locked", *example])
    if done.returncode != 0:
        raise BuildError(f"cargo could not compile it: {_first_error(done.stdout)}")
    return _target() / "release" / "examples" / "libsimulated_engine.so"


def check(workspace: Path = WORKSPACE) -> str:
    """Check format and lint rules of the sources; return cargo's report, empty without problems.

    Raises:
        BuildError: cargo is missing or does not finish.
    """
    return _report(workspace, ["fmt", "--check"]) or _report(workspace, _CLIPPY)


def format_sources(workspace: Path = WORKSPACE) -> str:
    """Format the sources; return cargo's report on files that it cannot parse, empty on success.

    Raises:
        BuildError: cargo is missing or does not finish.
    """
    return _report(workspace, ["fmt"])


def _report(workspace: Path, arguments: list[str]) -> str:
    done = _cargo_run(workspace, arguments)
    if done.returncode == 0:
        return ""
    return done.stdout.strip() or f"cargo exited with {done.returncode}"


def _cargo_run(workspace: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    cargo, target = _cargo(), _target()
    with folders.locked(_lock(target)):
        _own(cargo, workspace, target)
        return _command(cargo, arguments, workspace, target)


def _run(cargo: Path, arguments: list[str], workspace: Path, target: Path, action: str) -> None:
    _own(cargo, workspace, target)
    done = _command(cargo, arguments, workspace, target)
    if done.returncode != 0:
        raise BuildError(f"cargo could not {action}: {_first_error(done.stdout)}")


def _target() -> Path:
    # All checkouts share this folder, because the dependencies take most of the time.
    return folders.cache() / "bls"


def _lock(target: Path) -> Path:
    return target.with_name("bls.lock")


def _own(cargo: Path, workspace: Path, target: Path) -> None:
    """Remove crates of another checkout: cargo would take its library, which has the same name."""
    owner = target / "checkout"
    if owner.is_file() and owner.read_text() == str(workspace):
        return
    owner.unlink(missing_ok=True)
    clean = ["clean", "--quiet", "--release", "--locked"]
    for crate in CRATES:
        clean += ["--package", crate]
    done = _command(cargo, clean, workspace, target)
    if done.returncode != 0:
        raise BuildError(f"cargo could not clean {target}: {_first_error(done.stdout)}")
    target.mkdir(parents=True, exist_ok=True)
    folders.write(owner, str(workspace))


def _command(
    cargo: Path, arguments: list[str], workspace: Path, target: Path
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "PATH": f"{cargo.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    try:
        return subprocess.run(
            [str(cargo), *arguments],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{cargo} did not finish: {error}.") from error


def _cargo() -> Path:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"
    # rustup adds its folder to PATH in the shell's profile, which not every shell reads.
    program = shutil.which("cargo") or shutil.which("cargo", path=str(home))
    if program is None:
        raise BuildError(
            f"no cargo on PATH or in {home}, which compiles {FILE}: install Rust 1.88 or newer, "
            "such as with rustup."
        )
    return Path(program)


def _first_error(output: str) -> str:
    """Return the first error with the lines after it, or the last lines without an error."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if line.startswith("error")), -_ERROR_LINES)
    return "\n".join(lines[first:][:_ERROR_LINES]) or "no output"


def main(arguments: Sequence[str] = ()) -> int:
    """Run the command line; return 2 and print one sentence if cargo cannot do its work."""
    parser = argparse.ArgumentParser(prog="python -m support.bls", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["lint", "fmt"], help="none: build")
    command, problems = parser.parse_args(arguments).command, ""
    try:
        match command:
            case "lint":
                problems = check()
            case "fmt":
                problems = format_sources()
            case _:
                build(report)
    except BuildError as error:
        print(f"bls: {error}", file=sys.stderr)
        return 2
    if problems:
        print(problems, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
