"""Read the YAML tables of this package."""

from importlib import resources
from typing import Any

import yaml

# The parser in C takes a tenth of the time of the other; some builds of PyYAML lack it.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def table(package: str, name: str) -> Any:
    """The document of a file in a package, as plain values."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, LOADER)  # noqa: S506 (a safe loader)
