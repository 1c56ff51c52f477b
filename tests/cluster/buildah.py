"""Runs buildah with a separate image store in the cache."""

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from cluster import folders


def buildah(
    *args: str, hear: Callable[[str], None] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run buildah and wait for its end; call `hear` with each line as buildah prints it.

    Raises:
        subprocess.TimeoutExpired: buildah took longer than timeout seconds.
    """
    store = folders.cache() / "images" / "store"
    store.mkdir(parents=True, exist_ok=True)
    argv = ["buildah", f"--root={store}", f"--runroot={store / 'run'}", *args]
    environment = {
        **os.environ,
        "STORAGE_DRIVER": _driver(store),
        # The isolation by chroot needs neither user namespaces nor a container runtime.
        "BUILDAH_ISOLATION": "chroot",
    }
    if hear is None:
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            hear(line.rstrip())
    return subprocess.CompletedProcess(argv, process.returncode, "", "")


def image_id(tag: str) -> str | None:
    """Return the id of the image called tag, or None if the store lacks it."""
    done = buildah("images", "--quiet", "--no-trunc", tag)
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


@functools.cache
def _driver(store: Path) -> str:
    """Return overlay if the store's file system supports overlays, else vfs (whole copies)."""
    parts = [store / ".trial" / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir(parents=True, exist_ok=True)
    lower, upper, work, merged = parts
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(merged)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return "vfs"
    subprocess.run(["umount", str(merged)], capture_output=True, check=True)
    return "overlay"
