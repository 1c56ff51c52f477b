"""Packages that a pod takes from the operator's image in place of those in the server's image.

From 26.03 on, the build of Triton's image installs openai 1.107.3 last. TensorRT-LLM 1.2 and later
import `PartReasoningText`, which openai has from 1.108.1 on, so no part of such a TensorRT-LLM can
be imported. An init container copies a newer openai from the operator's image into `FOLDER`. This
module reads the versions in the server's image, and decides whether Python searches there first.

It runs in build Jobs, and in servers as a module beside the model of the LLM API.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import DistributionFinder, MetadataPathFinder

FOLDER = "/specdec/packages"
PACKAGE = "openai"
# The first version of the package that has every name that TensorRT-LLM imports.
FIRST = "1.108.1"
_USER, _SINCE = "tensorrt_llm", "1.2"


def installed(package: str, search: Sequence[str]) -> str:
    """The version of a package in the first of these folders that has it; empty if none has."""
    context = DistributionFinder.Context(name=package, path=list(search))
    live = next(iter(MetadataPathFinder.find_distributions(context)), None)
    return live.version if live else ""


def needed(search: Sequence[str]) -> bool:
    """Whether TensorRT-LLM in these folders needs a newer package than the one beside it."""
    user, own = installed(_USER, search), installed(PACKAGE, search)
    if not user or not own:
        return False
    return _numbers(user) >= _numbers(_SINCE) and _numbers(own) < _numbers(FIRST)


def use(folder: str = FOLDER) -> str:
    """Let this process, and all that it starts, search a folder first if the image needs it.

    Returns:
        the line for the log; empty if nothing changes.
    """
    newer = installed(PACKAGE, [folder])
    if not newer or not needed(sys.path):
        return ""
    line = f"{PACKAGE} {newer} replaces {installed(PACKAGE, sys.path)} of the image"
    sys.path.insert(0, folder)
    own = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{own}" if own else folder
    return line


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version starts with: of 1.3.0rc5 these are 1, 3 and 0."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
