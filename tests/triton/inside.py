"""Run a command with a folder at /models: `python inside.py ROOT MODELS COMMAND...`.

Pods of the operator have the volume at /models, and the repositories name that path. A machine
that runs tests lacks this folder. Start this program in a new user and mount namespace
(`unshare --user --map-root-user --mount`). Below the empty folder ROOT, it mounts the root
folders of the machine, and MODELS as /models. Then it changes its root to ROOT and runs COMMAND.
"""

import os
import subprocess
import sys
from pathlib import Path


def main(root: Path, models: Path, command: list[str]) -> None:
    """Change the root and replace this process by the command; does not return."""
    here = Path.cwd()
    _mount("-t", "tmpfs", "none", str(root))
    for entry in sorted(Path("/").iterdir()):
        _show(entry, root / entry.name)
    _show(models, root / "models")
    os.chroot(root)
    os.chdir(here)
    os.execv(command[0], command)  # noqa: S606


def _show(entry: Path, place: Path) -> None:
    if entry.is_symlink():
        place.symlink_to(entry.readlink())
    elif entry.is_dir():
        place.mkdir()
        # Recursive: a user namespace may not reveal files that mounts below the folder hide.
        _mount("--rbind", str(entry), str(place))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
