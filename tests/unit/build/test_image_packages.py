"""The versions in an image decide whether Python searches the copied packages first."""

import json
import subprocess
import sys
from pathlib import Path

import image_packages
import pytest

from support.image_tree import distribution

SHOWN = """\
import json, subprocess, sys
import image_packages
line = image_packages.use(sys.argv[1])
import openai
child = subprocess.run(
    [sys.executable, "-c", "import openai; print(openai.__version__)"],
    capture_output=True, text=True, check=True,
)
print(json.dumps([line, openai.__version__, child.stdout.strip()]))
"""
OLD, NEW = "1.107.3", "1.109.1"


@pytest.mark.parametrize(
    ("trtllm", "own", "imported"),
    [
        ("1.2.1", OLD, NEW),
        ("1.2.0", "1.108.0", NEW),
        ("1.3.0rc5", OLD, NEW),
        ("1.2.1+cu13", OLD, NEW),
        # An image that carries a fitting one, and a release that imports no newer name.
        ("1.2.1", "1.108.1", "1.108.1"),
        ("1.2.1", "2.8.1", "2.8.1"),
        ("1.1.0", OLD, OLD),
        (None, OLD, OLD),
    ],
)
def test_the_versions_in_the_image_decide(
    trtllm: str | None, own: str, imported: str, tmp_path: Path
) -> None:
    site, folder = tmp_path / "site", tmp_path / "packages"
    distribution(site, "openai", own)
    distribution(folder, "openai", NEW)
    if trtllm is not None:
        distribution(site, "tensorrt_llm", trtllm)
    line, here, child = run(site, folder)
    assert (here, child) == (imported, imported)
    replaces = f"openai {NEW} replaces {own} of the image" if imported != own else ""
    assert line == replaces


def run(site: Path, folder: Path) -> list[str]:
    """Return the line, and the version that the process and one that it starts import."""
    own = Path(image_packages.__file__).parent
    done = subprocess.run(
        [sys.executable, "-S", "-c", SHOWN, str(folder)],
        env={"PYTHONPATH": f"{own}:{site}"},
        capture_output=True,
        text=True,
        check=True,
    )
    result: list[str] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_without_a_copy_nothing_changes(tmp_path: Path) -> None:
    site = tmp_path / "site"
    distribution(site, "openai", OLD)
    distribution(site, "tensorrt_llm", "1.2.1")
    assert run(site, tmp_path / "packages") == ["", OLD, OLD]


def test_an_image_without_the_package_needs_none(tmp_path: Path) -> None:
    distribution(tmp_path, "tensorrt_llm", "1.2.1")
    assert not image_packages.needed([str(tmp_path)])
