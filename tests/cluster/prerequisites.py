"""Programs that the machine needs beyond Python and Go; apt-get installs the missing programs."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from cluster import folders
from cluster.errors import ClusterError
from cluster.progress import Report

_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
# Debian's package for each command; the network plugins are not on PATH.
_NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "ptp": "containernetworking-plugins",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "ip": "iproute2",
    "socat": "socat",
    "nsenter": "util-linux",
    "mount": "mount",
    "sysctl": "procps",
}
_IMAGES = {"buildah": "buildah", "debootstrap": "debootstrap"}


def require_node(report: Report) -> None:
    """Make sure that a node can run here.

    Raises:
        ClusterError: a node cannot run; the message names everything that is missing.
    """
    _require_linux_root("A node needs")
    _require(_NODE, report)


def require_images(report: Report) -> None:
    """Make sure that images can be built here.

    Raises:
        ClusterError: a build cannot run; the message names everything that is missing.
    """
    _require_linux_root("Building images needs")
    _require(_IMAGES, report)


def _require_linux_root(what: str) -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise ClusterError(f"{what} Linux and root; a control plane (--control-plane) does not.")


def _require(commands: dict[str, str], report: Report) -> None:
    # Debian installs some of these commands in folders that an ordinary PATH lacks.
    os.environ["PATH"] = ":".join(dict.fromkeys([*os.environ["PATH"].split(":"), *_FOLDERS]))
    packages = missing(commands)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"Please install {', '.join(packages)}; there is no apt-get here.")
    # apt-get fails at once while another apt-get runs.
    with folders.locked(folders.cache() / "apt-get.lock"):
        # The previous holder of the lock may have installed the packages.
        if packages := missing(commands):
            report(f"installing {', '.join(packages)}")
            problem = _install(packages)
            if packages := missing(commands):
                message = f"apt-get could not install {', '.join(packages)}; install them first."
                raise ClusterError(f"{message} {problem}".rstrip())


def _install(packages: list[str]) -> str:
    """Install packages; return the last line of apt-get's errors, or an empty string."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    errors = [
        subprocess.run(
            ["apt-get", "-qq", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
        ).stderr
        for arguments in (["update"], ["install", "--no-install-recommends", *packages])
    ]
    return next(reversed("".join(errors).splitlines()), "")


def missing(commands: dict[str, str]) -> list[str]:
    """Return the packages of the commands that are not installed."""
    absent = {package for command, package in commands.items() if not _is_installed(command)}
    return sorted(absent)


def _is_installed(command: str) -> bool:
    plugins = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
    return bool(shutil.which(command)) or any((folder / command).exists() for folder in plugins)
