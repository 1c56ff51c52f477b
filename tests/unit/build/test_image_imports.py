"""Imports that would end a program or a server of an image are differences of the image check."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import image_imports
import image_main
import pytest
from image_imports import Site

from specdec.backends.pytorch import image as pytorch
from specdec.backends.tensorrt import image as tensorrt
from support.image_tree import RELEASES, copied, openai, write
from unit.build.image import BUILD, Image

NEWEST = next(release for release in RELEASES if release.tag == "26.07")
WHOLE = next(release for release in RELEASES if release.tag == "release-image")
EVENT = "openai.types.responses.response_content_part_added_event"
ERROR = f"cannot start: cannot import name 'PartReasoningText' from '{EVENT}' (openai 1.107.3)"
EXPECTED: dict[str, Callable[[str], dict[str, Any]]] = {
    "TensorRT": tensorrt.expectations,
    "PyTorch": pytorch.expectations,
}

Capture = Any


@pytest.mark.parametrize("backend", EXPECTED)
def test_image_26_07_fails_the_check_with_the_import_error_and_the_fix(
    backend: str, tmp_path: Path, capsys: Capture
) -> None:
    """Triton's build of 26.07 pins openai 1.107.3, and TensorRT-LLM 1.2.1 imports a newer name.

    Upstream: `python/openai/requirements.txt` of Triton's server, and
    `tensorrt_llm/serve/responses_utils.py`, which `_torch/pyexecutor/py_executor.py` imports.
    """
    root = write(tmp_path, NEWEST)
    expected = json.dumps(EXPECTED[backend]("1.2.1"))
    assert image_main.main([str(root)], expected) == 1
    error = capsys.readouterr().err
    assert error.startswith("specdec: the image differs from TensorRT-LLM 1.2.1: ")
    assert ERROR in error
    assert error.endswith(
        ": the operator's pods replace openai in such an image; to check that, give --packages "
        "with /opt/specdec/packages of the operator's image, and elsewhere take openai 1.108.1 or "
        "newer\n"
    )


@pytest.mark.parametrize("backend", EXPECTED)
def test_the_copy_of_the_operators_image_makes_26_07_pass(
    backend: str, tmp_path: Path, capsys: Capture
) -> None:
    root, copy = write(tmp_path / "image", NEWEST), copied(tmp_path / "packages")
    expected = json.dumps(EXPECTED[backend]("1.2.1"))
    assert image_main.main([str(root), "--packages", str(copy)], expected) == 0
    assert "the image fits TensorRT-LLM 1.2.1" in capsys.readouterr().out


def test_the_release_image_passes_without_a_copy(tmp_path: Path) -> None:
    root = write(tmp_path, WHOLE)
    assert image_main.main([str(root)], json.dumps(pytorch.expectations("1.2.1"))) == 0


def test_a_build_in_26_07_starts_no_program_without_the_copy(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    event = image.root / "site" / Path(*EVENT.split(".")).with_suffix(".py")
    event.write_text("class PartOutputText:\n    pass\n", "utf-8")
    reason, message = image.refused(image.plan())
    assert reason == "ImageMismatch"
    assert "cannot start: cannot import name 'PartReasoningText'" in message
    assert image.programs() == []


def test_the_copy_lets_a_build_in_26_07_run_its_programs(tmp_path: Path) -> None:
    image = Image(tmp_path / "image", "1.2.1", checked=True)
    site, copy = image.root / "site", copied(tmp_path / "packages")
    for path in site.glob("openai*"):
        shutil.rmtree(path)
    openai(site, "1.107.3")
    folder = f"image_packages.use.__defaults__ = ({str(copy)!r},)"
    (image.root / "plan.json").write_text(json.dumps(image.plan()), "utf-8")
    arguments = ["--plan", f"{image.root}/plan.json", "--image", f"{image.root}/image.json"]
    run = f"import build_engine, image_packages, sys; {folder}; sys.exit(build_engine.main())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", run, *arguments],
        env={**image.environment(), "PYTHONPATH": f"{site}:{BUILD.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "openai 1.109.1 replaces 1.107.3 of the image\n" in done.stdout
    assert done.returncode == 0, done.stderr
    assert "trtllm-build" in image.programs()


def test_a_module_that_the_image_lacks_is_named(tmp_path: Path, capsys: Capture) -> None:
    root = write(tmp_path, WHOLE)
    (root / WHOLE.packages / "tensorrt_llm/serve/responses_utils.py").unlink()
    assert image_main.main([str(root)], json.dumps(pytorch.expectations("1.2.1"))) == 1
    assert "No module named 'tensorrt_llm.serve.responses_utils'" in capsys.readouterr().err


SOURCES = {
    "a plain name": ("here = 1", "from other import here", ""),
    "a missing name": ("here = 1", "from other import absent", "cannot import name 'absent'"),
    "a class, a function and an import": (
        "import a.b\nfrom c import d as e\nclass F: ...\ndef g(): ...",
        "from other import a, e, F, g",
        "",
    ),
    "a name that only a branch defines": (
        "if x:\n    here = 1\nelse:\n    there = 2",
        "from other import here, there",
        "",
    ),
    "a name inside a function": (
        "def f():\n    inside = 1",
        "from other import inside",
        "cannot import name 'inside'",
    ),
    "names made while the module runs": (
        "globals().update(x=1)",
        "from other import anything",
        "",
    ),
    "a module with __getattr__": (
        "def __getattr__(name): ...",
        "from other import anything",
        "",
    ),
    "a lazy module": (
        "import sys\nsys.modules[__name__] = Lazy()",
        "from other import anything",
        "",
    ),
    "a star of a known module": ("from star import *", "from other import starred", ""),
    "a star without the name": (
        "from star import *",
        "from other import absent",
        "cannot import name 'absent'",
    ),
    "a star of an unknown module": ("from unknown import *", "from other import absent", ""),
    "an import with a handler": (
        "here = 1",
        "try:\n    from other import absent\nexcept ImportError:\n    absent = None",
        "",
    ),
    "an import with another handler": (
        "here = 1",
        "try:\n    from other import absent\nexcept ValueError:\n    absent = None",
        "cannot import name 'absent'",
    ),
    "an import under a condition": ("here = 1", "if x:\n    from other import absent", ""),
    "an import in a function": ("here = 1", "def f():\n    from other import absent", ""),
    "compiled code": ("", "from compiled import anything", ""),
    "a folder without a source": ("", "from space import anything", ""),
    "a module of a package": ("", "from package import module", ""),
    "no module of a package": ("", "import package.absent", "No module named 'package.absent'"),
    "a package that may be elsewhere": ("", "import elsewhere", ""),
    "a source of a newer Python": ("type X = int\n'''", "from other import anything", ""),
    "the standard library": ("", "from ssl import CERT_NONE\nimport json.absent", ""),
    "the file of a module": ("", "from other import __file__", ""),
}


@pytest.mark.parametrize("name", SOURCES)
def test_only_what_no_source_can_define_is_a_problem(name: str, tmp_path: Path) -> None:
    other, importer, error = SOURCES[name]
    files = {
        "tensorrt_llm/__init__.py": "from . import part",
        "tensorrt_llm/part.py": importer,
        "other.py": other,
        "star.py": "starred = 1",
        "package/__init__.py": "",
        "package/module.py": "",
        "space/further.txt": "",
        "compiled.cpython-312-x86_64-linux-gnu.so": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    site = Site([str(tmp_path)], live=False)
    clauses = image_imports.problems({"tensorrt_llm": "tensorrt_llm"}, site)
    assert bool(clauses) == bool(error)
    assert all(clause.startswith(f"tensorrt_llm cannot start: {error}") for clause in clauses)


def test_only_where_the_programs_run_a_missing_package_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "tensorrt_llm").mkdir()
    source = "import json, no_such_package_of_ours"
    (tmp_path / "tensorrt_llm/__init__.py").write_text(source)
    starts = {"tensorrt_llm": "tensorrt_llm"}
    assert image_imports.problems(starts, Site([str(tmp_path)], live=False)) == ()
    (clause,) = image_imports.problems(starts, Site([str(tmp_path)], live=True))
    assert clause == "tensorrt_llm cannot start: No module named 'no_such_package_of_ours'"


def test_a_script_may_import_modules_beside_it(tmp_path: Path) -> None:
    """As scripts of TensorRT-LLM's examples do; a module of the same name may be elsewhere."""
    (tmp_path / "site/tensorrt_llm").mkdir(parents=True)
    (tmp_path / "site/tensorrt_llm/__init__.py").write_text("here = 1\n")
    (tmp_path / "site/utils.py").write_text("")
    script = tmp_path / "convert.py"
    script.write_text("import beside\nfrom utils import load\nfrom tensorrt_llm import here, x\n")
    site = Site([str(tmp_path / "site")], live=True)
    clauses = image_imports.problems({"convert.py": str(script)}, site)
    assert clauses == ("convert.py cannot start: cannot import name 'x' from 'tensorrt_llm'",)


@pytest.mark.slow
def test_this_machines_packages_have_no_problem() -> None:
    """Large packages import each other in every way that Python has."""
    site = Path(pytest.__file__).parents[1]
    names = ("hypothesis", "kubernetes", "numpy", "openai", "pydantic", "rich", "typer")
    image_imports_of = Site([str(site)], live=True)
    for name in names:
        image_imports._OWN = name
        try:
            assert image_imports.problems({name: name}, image_imports_of) == ()
        finally:
            image_imports._OWN = "tensorrt_llm"
