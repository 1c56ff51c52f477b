"""The source text of programs that Jobs and servers run in images without this package."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

from specdec.api import names

# Modules that only compare the image with its release.
_CHECKS = "image_"


@cache
def payload(folder: str) -> Mapping[str, str]:
    """The Python files of a folder under `images/`: text by file name."""
    files = resources.files("specdec").joinpath("images", folder).iterdir()
    return {f.name: f.read_text("utf-8") for f in files if f.name.endswith(".py")}


def builder_digest(scripts: Mapping[str, str]) -> str:
    """The digest of a build program for the keys of its engines.

    The image check is left out: it changes no byte of an engine.
    """
    return _digest(tuple(pair for pair in scripts.items() if not pair[0].startswith(_CHECKS)))


@cache
def _digest(files: tuple[tuple[str, str], ...]) -> str:
    """The digest of names and texts; they stay the same for the life of a process."""
    return names.digest(dict(files))
