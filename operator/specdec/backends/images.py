"""What the image check expects of the images of each backend, for the command `specdec image`.

The package of a backend has a module `image` if its images have a check.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from specdec.api.matrix import Backend

_PACKAGE = __name__.rpartition(".")[0]


def _module(backend: str) -> str:
    return f"{_PACKAGE}.{backend.lower()}.image"


# The backends whose images have a check; the first one is the default.
BACKENDS = tuple(backend.value for backend in Backend if find_spec(_module(backend)))


def releases(backend: str) -> tuple[str, ...]:
    """Releases that an image can be compared with; the last one is the default."""
    known: tuple[str, ...] = import_module(_module(backend)).releases()
    return known


def expectations(backend: str, version: str) -> dict[str, Any]:
    """What an image of a release has to hold, as JSON."""
    expected: dict[str, Any] = import_module(_module(backend)).expectations(version)
    return expected
