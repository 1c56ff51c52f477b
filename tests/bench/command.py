"""The cost of the command line before it does any work: start time and size of its extra.

`make bench NAME=command` prints one JSON line a figure and exits 1 when a goal is missed.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.bench_report import Report

_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# Goal in starts of Python: 0.4 s where one takes 13 ms.
_STARTS_OF_PYTHON = 30.0
_EXTRA_MB = 60.0
_STARTS = {
    "help": ["--help"],
    "generate_help": ["generate", "--help"],
    "verify_help": ["verify", "--help"],
    "plan_help": ["plan", "--help"],
    # No server listens there: the command loads every module of the client, then fails.
    "generate": ["generate", "--url", "127.0.0.1:9", "--prompt", "a"],
}


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=9, help="times each command is started")
    options = parser.parse_args()
    report = Report()
    for name, arguments in _STARTS.items():
        goal = None if name == "generate" else _STARTS_OF_PYTHON
        report.starts(f"command.{name}", arguments, options.starts, goal=goal)
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    needed = _closure(project["dependencies"])
    client = _closure([*project["dependencies"], *project["optional-dependencies"]["client"]])
    sizes = {name: _megabytes(name) for name in client - needed}
    report.figure("command.client_extra_mb", [sum(sizes.values())], "MB", goal=_EXTRA_MB)
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:5]:
        print(f"{name}: {size:.1f} MB", file=sys.stderr)
    return report.exit_status()


def _closure(lines: Sequence[str]) -> set[str]:
    """Return the distributions that these requirements need here, directly or indirectly."""
    waiting = [Requirement(line) for line in lines]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for chosen in ("", *sorted(requirement.extras)):
            if (name, chosen) in seen:
                continue
            seen.add((name, chosen))
            for line in metadata.requires(name) or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": chosen}):
                    waiting.append(needed)
    return {name for name, _ in seen}


def _megabytes(name: str) -> float:
    """Return the size of a distribution's files, without compiled `.pyc` files."""
    listed = metadata.distribution(name).files or ()
    files = {Path(str(file.locate())) for file in listed if file.suffix != ".pyc"}
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
