"""The source text of programs that Jobs and servers run in images without this package."""

from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def payload(folder: str) -> Mapping[str, str]:
    """The Python files of a folder under `payload/`: text by file name."""
    files = resources.files("specdec").joinpath("payload", folder).iterdir()
    return {f.name: f.read_text("utf-8") for f in files if f.name.endswith(".py")}
