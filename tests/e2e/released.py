"""A release of this tree for one node, and README's commands that install it.

Every command runs as printed, from an empty folder. This machine replaces the public hosts in it:
the node's registry is `ghcr.io`. In place of the repository on `github.com`, git reads a local
repository with this tree and the tag of the release.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chart.helm import CHART, Helm
from cluster import binaries, registry
from cluster.handle import Node
from e2e import public_hosts
from specdec import __version__
from support.quickstarts import ROOT, typed

# The folders that README's kustomize command reads.
_TREE = ("crds", "manifests")
_GIT = "https://github.com/specdec/specdec"


@dataclass(frozen=True)
class Release:
    """Runs README's commands in an empty folder, with the variables of a reader's shell."""

    desk: Path
    environment: dict[str, str]

    def __call__(self, line: list[str], *more: str) -> str:
        """Run a command with more arguments at its end, and return its output."""
        done = subprocess.run(
            [*line, *more], cwd=self.desk, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{' '.join(line)}: {done.stderr.strip()}"
        return done.stdout


@contextmanager
def release(node: Node) -> Iterator[Release]:
    """Publish chart and manifests; yield a release that runs README's commands on the node."""
    with tempfile.TemporaryDirectory(prefix="specdec-release-") as folder:
        place = Path(folder)
        for name in ("desk", "home", "hosts"):
            (place / name).mkdir()
        _push_chart(node, place)
        _tag_manifests(place / "specdec")
        hosts = {registry.MIRRORED: node.registry}
        with public_hosts.serving(place / "hosts", hosts) as reached:
            environment = {
                "PATH": f"{_programs(place / 'bin')}:{os.environ['PATH']}",
                "HOME": str(place / "home"),
                "KUBECONFIG": str(node.kubeconfig),
                # Requests to the node itself bypass the proxy.
                "NO_PROXY": node.state.addresses.host,
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"url.{place / 'specdec'}.insteadOf",
                "GIT_CONFIG_VALUE_0": _GIT,
                **reached,
            }
            yield Release(place / "desk", environment)


def line(*begin: str, has: str = "") -> list[str]:
    """Return README's only command that begins with `begin` and contains `has`."""
    (only,) = [
        command
        for command in typed(ROOT / "README.md")
        if tuple(command[: len(begin)]) == begin and has in " ".join(command)
    ]
    return only


def _programs(folder: Path) -> Path:
    """Make a folder with the pinned programs under the names that a reader types."""
    folder.mkdir()
    for name in ("helm", "kubectl"):
        (folder / name).symlink_to(binaries.path(name))
    return folder


def _push_chart(node: Node, place: Path) -> None:
    helm = Helm(place / "home", node.kubeconfig)
    helm("package", CHART, "--destination", place)
    (package,) = place.glob("*.tgz")
    helm("push", package, f"oci://{node.registry}/specdec/charts", "--plain-http")


def _tag_manifests(folder: Path) -> None:
    for name in _TREE:
        shutil.copytree(ROOT / name, folder / name)
    author = ("-c", "user.name=specdec", "-c", "user.email=specdec@example.com")
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        (*author, "commit", "--quiet", "--message", "Release"),
        ("tag", f"v{__version__}"),
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
