"""The library in this package that Triton loads as the backend `specdec`.

It is compiled from `operator/bls`, and a text file beside it has the digest of those sources. The
operator reads the digest from its own package, and writes it into the repository plan. The publish
Job compares this digest with that of the library in the Job's image. A package for the command
line has the digest alone.
"""

from functools import cache
from pathlib import Path

from specdec.triton.library_digest import digest
from specdec.triton.plan import PlanError

BACKEND = "specdec"
FILE = f"libtriton_{BACKEND}.so"
# Beside the library, here and in every repository: sha256 (hex) over its sources, and a newline.
SOURCE = f"libtriton_{BACKEND}.source"


def folder() -> Path:
    """The folder of the package with the library and the other files of the BLS's model."""
    return Path(__file__).parents[1] / "images" / "models" / "tensorrt_llm_bls"


def file() -> Path:
    """The package's library.

    Raises:
        PlanError: this installation has none.
    """
    path = folder() / FILE
    if not path.is_file():
        raise PlanError(
            f"this installation of specdec has no {FILE}: run `make setup` in its checkout, or "
            "use a released image"
        )
    return path


def workspace() -> Path:
    """The library's sources, if the package is part of a checkout."""
    return Path(__file__).parents[2] / "bls"


@cache
def source_digest() -> str:
    """sha256 (hex) over the sources of the package's library, or of the checkout's.

    Raises:
        PlanError: this installation has neither.
    """
    named = folder() / SOURCE
    if named.is_file():
        return named.read_text("utf-8").strip()
    if workspace().is_dir():
        return digest(workspace())
    raise PlanError(
        f"this installation of specdec has no {SOURCE}: install a released package, or use a "
        "released image"
    )
