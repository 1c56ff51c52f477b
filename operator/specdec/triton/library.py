"""The library that Triton loads as the backend `specdec`, as this package ships it.

It is compiled from `operator/bls`; a text file beside it holds the digest of
those sources. The plan of a repository and the Job that publishes it compare that digest.
"""

from functools import cache
from pathlib import Path

from specdec.triton.plan import PlanError

BACKEND = "specdec"
FILE = f"libtriton_{BACKEND}.so"
# Beside the library, here and in every repository: sha256 (hex) over its sources, and a newline.
SOURCE = f"libtriton_{BACKEND}.source"


def folder() -> Path:
    """Where the package keeps the library, and what else the backend's model needs as files."""
    return Path(__file__).parents[1] / "payload" / "models" / "tensorrt_llm_bls"


@cache
def source() -> str:
    """sha256 (hex) over the sources of the package's library.

    Raises:
        PlanError: this installation was made without the library.
    """
    file = folder() / SOURCE
    if not file.is_file():
        raise PlanError(
            f"this installation of specdec has no {FILE}: run `make setup` in its checkout, or "
            "use a released image"
        )
    return file.read_text("utf-8").strip()
