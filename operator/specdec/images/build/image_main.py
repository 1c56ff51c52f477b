"""Compare an image with a release: `python3 image_main.py --expected FILE DIR`.

`specdec image check` runs this program, and `specdec image program` packs it into one file for a
container of the image. Exit status: 0 the image fits, 1 it differs, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import image_check
import image_files
import image_samples


def main(arguments: list[str] | None = None, text: str = "") -> int:
    """Run the command line; `text` has the expectations, or is empty if an option names a file."""
    parser = argparse.ArgumentParser(prog="image-check", description="Check a server image")
    parser.add_argument("root", nargs="?", default="/", help="the image's file system")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--packages", default="", help="a folder that pods search first")
    if not text:
        parser.add_argument("--expected", required=True, help="JSON file; - is stdin")
    options = parser.parse_args(arguments)
    root = Path(options.root)
    if not root.is_dir():
        print(f"specdec: {root} is no directory: give the root of an image", file=sys.stderr)
        return 2
    try:
        expected = json.loads(text or _read(options.expected))
        report = _report(expected, root, options.packages)
    except (OSError, ValueError) as error:
        print(f"specdec: the image cannot be read: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report.shown(), indent=2))
    else:
        _show(report, expected)
    if report.differences and not options.json:
        print(f"specdec: {image_check.sentence(report, expected)}", file=sys.stderr)
    return 1 if report.differences else 0


def _report(expected: dict[str, Any], root: Path, packages: str) -> image_check.ImageReport:
    folders = [str(image_files.below(root, folder)) for folder in expected["examples"]]
    builds = image_samples.commands(expected["version"], folders) if folders else ([], [])
    commands, missing = builds
    programs = dict.fromkeys(image_check.program(command) for command in commands)
    image = image_files.gather(
        root,
        expected["templates"],
        expected["models"],
        (*programs, *expected["programs"]),
        expected["modules"],
        packages,
    )
    return image_check.check(expected, image, commands, missing=missing)


def _show(report: image_check.ImageReport, expected: dict[str, Any]) -> None:
    line = f"TensorRT-LLM {report.version or 'is not installed'}"
    if expected["models"]:
        fields = ", ".join(report.fields.values()) or "none"
        line += (
            f", {report.templates} templates, {report.flags} flags of build programs, request "
            f"fields {fields}"
        )
    print(line)
    for difference in report.differences:
        print(f"- {difference}")
    if not report.differences:
        print(f"the image fits TensorRT-LLM {expected['version']}")


def _read(source: str) -> str:
    return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
