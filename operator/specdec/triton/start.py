"""The command of a server's container: check the files on the volume, then start the server."""

from collections.abc import Sequence

from specdec.triton.launch import program_path

_CHECK = ["python3", "-I", "-S", program_path("check_volume.py")]


def checked(argv: Sequence[str], manifest: str, wait_seconds: int) -> list[str]:
    """The command that starts a server once its files on the volume match the manifest.

    Args:
        argv: of `launch.command`.
        manifest: path of the list of files, inside the pod.
        wait_seconds: how long damaged files may take to be repaired.
    """
    return [*_CHECK, manifest, str(wait_seconds), *argv]


def server(argv: Sequence[str]) -> list[str]:
    """The server's own command, without the check of the volume if there is one."""
    own = len(_CHECK)
    return list(argv[own + 2 :]) if list(argv[:own]) == _CHECK else list(argv)
