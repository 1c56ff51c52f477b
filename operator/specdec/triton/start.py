"""How a server's container starts: its files are compared with what was published first."""

from collections.abc import Sequence

from specdec.triton.launch import program

_PROGRAM = "check_volume.py"


def checked(argv: Sequence[str], manifest: str, wait_seconds: int) -> list[str]:
    """The arguments of a server that starts when its files on the volume are as published.

    Args:
        argv: of `launch.command`.
        manifest: path of the list of files, inside the pod.
        wait_seconds: how long damaged files may take to be repaired.
    """
    return [*_check(), manifest, str(wait_seconds), *argv]


def server(argv: Sequence[str]) -> list[str]:
    """The server's own arguments; those of a container without the check are that already."""
    own = len(_check())
    # The program of another release differs.
    return list(argv[own + 2 :]) if list(argv[: own - 1]) == _check()[:-1] else list(argv)


def _check() -> list[str]:
    return ["python3", "-I", "-S", "-c", program(_PROGRAM)]
