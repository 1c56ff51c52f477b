"""Imports modules of the payload, which run in a model repository and never in the package."""

import importlib
import sys
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[2] / "operator" / "specdec" / "images" / "models"


def load(name: str) -> Any:
    """Import a module that the text models share."""
    folder = str(MODELS / "shared")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
