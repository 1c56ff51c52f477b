"""Runs the programs of a server's pod on this machine."""

import sys
from collections.abc import Sequence
from pathlib import Path

from specdec.triton import launch

FOLDER = Path(launch.__file__).parents[1] / "images" / "serving"


def local(argv: Sequence[str]) -> list[str]:
    """Return the command of a hook, probe or file check with this machine's Python and files."""
    python, *arguments = argv
    assert python == "python3"
    mounted = f"{launch.PROGRAMS}/"
    return [
        sys.executable,
        *(
            str(FOLDER / argument.removeprefix(mounted))
            if argument.startswith(mounted)
            else argument
            for argument in arguments
        ),
    ]
