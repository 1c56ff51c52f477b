"""Run a command with a folder at /models: `python inside.py ROOT MODELS COMMAND...`.

The pods of the operator have the volume there, and the repositories name it; a machine that runs
tests has no such folder and needs none. Started in a user and mount namespace of its own
(`unshare --user --map-root-user --mount`), this makes a root of mounts below the empty folder
ROOT, with everything of the machine and MODELS beside it, and becomes the command.
"""

import os
import subprocess
import sys
from pathlib import Path


def main(root: Path, models: Path, command: list[str]) -> None:
    """Change the root, then become the command; does not return."""
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
        # With what is mounted below: a namespace may not uncover what a mount hides.
        _mount("--rbind", str(entry), str(place))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
