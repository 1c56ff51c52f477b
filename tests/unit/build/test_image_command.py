"""`specdec image`: the check of a folder, and the check as a single file for a container."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.api.matrix import support
from specdec.backends.tensorrt.image import expectations
from specdec.backends.tensorrt.image_program import packed
from specdec.tools.cli.app import app
from support.image_tree import RELEASES, copied, write


def specdec(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specdec.tools.cli", "image", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_image_that_fits_has_status_0(tmp_path: Path) -> None:
    root = write(tmp_path, RELEASES[-1])
    result = specdec("check", str(root))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "the image fits TensorRT-LLM 1.2.1"


def test_an_image_that_differs_has_status_1_and_a_list(tmp_path: Path) -> None:
    root = write(tmp_path, RELEASES[0])
    result = specdec("check", str(root), "--version", "1.2.1")
    assert result.returncode == 1
    assert "- TensorRT-LLM 0.18.0 is installed\n" in result.stdout
    assert result.stderr.startswith("specdec: the image differs from TensorRT-LLM 1.2.1: ")
    assert result.stderr.count("\n") == 1
    report = json.loads(specdec("check", str(root), "--version", "1.2.1", "--json").stdout)
    assert report["version"] == "0.18.0"
    assert len(report["differences"]) == result.stdout.count("\n- ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("check", ".", "--version", "1.1.0"),
            "--version 1.1.0 is not served: use one of 0.18.0, 0.19.0, 1.2.1",
        ),
        (("check", "missing"), "missing is no directory: give the root of an image"),
        (
            ("check", ".", "--backend", "Reference"),
            "--backend Reference has no image to check: use TensorRT or PyTorch",
        ),
        (
            ("program", "-o", "missing/x.pyz"),
            "-o missing/x.pyz cannot be written: No such file or directory; choose another file",
        ),
    ],
)
def test_bad_input_has_status_2_and_one_sentence(
    arguments: tuple[str, ...], sentence: str
) -> None:
    result = specdec(*arguments)
    assert result.returncode == 2
    assert result.stderr == f"specdec: {sentence}\n"


def test_the_check_of_servers_needs_the_copy_for_the_image_of_triton(tmp_path: Path) -> None:
    root = write(tmp_path / "image", next(each for each in RELEASES if each.tag == "26.07"))
    arguments = ("check", str(root), "--backend", "PyTorch")
    result = specdec(*arguments)
    assert result.returncode == 1
    assert "- trtllm-serve cannot start: cannot import name 'PartReasoningText' " in result.stdout
    result = specdec(*arguments, "--packages", str(copied(tmp_path / "packages")))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "TensorRT-LLM 1.2.1\nthe image fits TensorRT-LLM 1.2.1\n"


@pytest.mark.parametrize("command", ["check", "program"])
def test_help_has_examples(command: str) -> None:
    result = CliRunner().invoke(app, ["image", command, "--help"])
    assert result.exit_code == 0
    assert f"specdec image {command} " in " ".join(result.stdout.split())


@pytest.mark.parametrize("version", support("TensorRT").versions)
def test_the_program_needs_one_file_and_only_python(version: str, tmp_path: Path) -> None:
    program = tmp_path / "check.pyz"
    assert specdec("program", "--version", version, "-o", str(program)).returncode == 0
    assert program.read_bytes() == packed(expectations(version))
    release = next(release for release in RELEASES if release.version == version)
    root = write(tmp_path / "image", release)
    options = ("--json", "--packages", str(copied(tmp_path / "packages")))
    result = subprocess.run(
        # -I and -S hide this environment's packages, as in a container of the image.
        [sys.executable, "-I", "-S", str(program), *options, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["version"] == version


def test_inside_a_container_the_program_checks_the_root(tmp_path: Path) -> None:
    program = tmp_path / "check.pyz"
    program.write_bytes(packed(expectations("1.2.1")))
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(program)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "no TensorRT-LLM is installed" in result.stderr
