"""README's `pip install` gives the same plans as the checkout, without Rust and sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specdec import __version__
from support.golden_cases import SAMPLES
from support.quickstarts import ROOT, typed

pytestmark = pytest.mark.slow

UV = str(Path(sys.executable).with_name("uv"))
# The sources of a package; the BLS's library is not among them.
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "operator")
COMPILED = "libtriton_specdec.*"


def run(*argv: str, cwd: Path, **environment: str) -> str:
    """Run a program outside of the checkout's environment, and return its output."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        argv, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel that is built from the sources alone."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "target", COMPILED)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    run(UV, "build", "--quiet", "--wheel", "--out-dir", "dist", cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment in which README's `pip install` was run."""
    (line,) = [c for c in typed(ROOT / "README.md") if c[:2] == ["pip", "install"]]
    folder = tmp_path_factory.mktemp("installed")
    run(UV, "venv", "--quiet", "--python", sys.executable, "environment", cwd=folder)
    index = ("--constraint", str(ROOT / "constraints.txt"))
    environment = {"VIRTUAL_ENV": str(folder / "environment")}
    run(UV, *line, "--quiet", *index, cwd=wheel.parent.parent, **environment)
    return folder / "environment" / "bin"


def test_wheel_names_the_library_and_does_not_hold_it(wheel: Path) -> None:
    names = run(sys.executable, "-m", "zipfile", "--list", str(wheel), cwd=wheel.parent)
    assert "tensorrt_llm_bls/libtriton_specdec.source" in names
    assert "libtriton_specdec.so " not in names
    assert wheel.stat().st_size < 2_000_000


def test_version_is_printed(installed: Path, tmp_path: Path) -> None:
    printed = run(str(installed / "specdec"), "--version", cwd=tmp_path)
    assert printed == f"specdec {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes_commands_and_options(installed: Path, tmp_path: Path, shell: str) -> None:
    program = str(installed / "specdec")
    for begun, completed in (("specdec ge", "generate"), ("specdec plan --che", "--checkpoint")):
        environment = {
            "_SPECDEC_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": begun,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": begun,
            "COMP_CWORD": str(begun.count(" ")),
        }
        assert completed in run(program, cwd=tmp_path, **environment)


def test_samples_are_planned_and_rendered_as_by_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    """Each installation runs all samples in one process: a start takes longer than a plan."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, pathlib\n"
        "from typer.testing import CliRunner\n"
        "from specdec.tools.cli.app import app\n"
        "for file in sys.argv[1:]:\n"
        "    name = pathlib.Path(file).stem\n"
        "    for args in (['plan', '-f', file], ['render', '-f', file, '-o', name]):\n"
        "        result = CliRunner().invoke(app, args)\n"
        "        assert result.exit_code == 0, result.output\n"
        "        print(result.output)\n"
    )
    files = [str(SAMPLES[name].resolve()) for name in sorted(SAMPLES)]
    printed = {}
    for name, python in (("wheel", str(installed / "python")), ("checkout", sys.executable)):
        folder = tmp_path / name
        folder.mkdir()
        printed[name] = run(python, str(script), *files, cwd=folder)
    assert printed["wheel"] == printed["checkout"]
    assert len(printed["wheel"]) > 10_000
    assert tree(tmp_path / "wheel") == tree(tmp_path / "checkout")


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder by their path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 300
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
