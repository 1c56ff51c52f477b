"""The cluster of the demo: the local node of tests/cluster, or kind on Docker."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cluster import binaries
from cluster.processes import DEADLINE_SECONDS
from demo.errors import DemoError
from demo.kubectl import Kubectl
from demo.tools import ROOT, Report, run
from specdec.api import released
from support import vllm_node

NAME = "specdec-demo"
# The local images have the released names, so that the demo applies unchanged manifests.
IMAGES = {
    "operator": released.OPERATOR_IMAGE,
    "reference": released.reference_beside(released.OPERATOR_IMAGE),
}


class Machine(Protocol):
    """A cluster that the demo creates, loads images into, queries and removes."""

    def up(self) -> None:
        """Create the cluster if it does not exist."""

    def build(self) -> None:
        """Build both images and load them into the cluster."""

    def down(self) -> None:
        """Remove the cluster and all that runs in it."""

    def kubectl(self) -> Kubectl:
        """Return a kubectl for the cluster."""


@dataclass(frozen=True)
class Node:
    """A real kubelet on this machine, in its own network namespace."""

    report: Report
    name: str = NAME

    def up(self) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            raise DemoError(
                "a real node needs Linux and root: run `sudo make demo`, or `make demo "
                "CLUSTER=kind` where Docker and kind are; `make test` runs every layer but the "
                "node's without either",
                exit_status=2,
            )
        self._cluster("up", "--name", self.name, "--node", "--gpus", "0")

    def build(self) -> None:
        for target, tag in IMAGES.items():
            self._cluster("image", "build", "--target", target, "--tag", tag)
        self._cluster("image", "load", "--name", self.name, *IMAGES.values())

    def build_vllm(self) -> None:
        """Build the image for vLLM and load it; `build` has made its base."""
        target, tag, file = vllm_node.NAME, vllm_node.IMAGE, vllm_node.DOCKERFILE
        self._cluster("image", "build", "--target", target, "--tag", tag, "--file", file)
        self._cluster("image", "load", "--name", self.name, tag)

    def offer_gpus(self, count: int) -> None:
        """Let the node offer simulated GPUs."""
        self._cluster("gpus", "--name", self.name, str(count))

    def down(self) -> None:
        self._cluster("down", "--name", self.name)

    def kubectl(self) -> Kubectl:
        done = subprocess.run(
            [sys.executable, "-m", "cluster", "kubeconfig", "--name", self.name],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise DemoError(
                done.stderr.strip() or f"there is no cluster {self.name}; run `make demo`"
            )
        return Kubectl(str(binaries.path("kubectl")), {"KUBECONFIG": done.stdout.strip()})

    def _cluster(self, *arguments: str) -> None:
        run(self.report, sys.executable, "-m", "cluster", *arguments)


@dataclass(frozen=True)
class Kind:
    """Kubernetes in Docker."""

    report: Report
    name: str = NAME

    def up(self) -> None:
        for tool in ("docker", "kind", "kubectl"):
            if shutil.which(tool) is None:
                raise DemoError(
                    f"CLUSTER=kind needs {tool} on PATH: install it, or run `sudo make demo`, "
                    "which needs neither Docker nor kind",
                    exit_status=2,
                )
        if self.name not in self._clusters():
            run(self.report, "kind", "create", "cluster", "--name", self.name, "--wait", "120s")

    def build(self) -> None:
        for target, tag in IMAGES.items():
            run(self.report, "docker", "build", "--target", target, "--tag", tag, str(ROOT))
        run(self.report, "kind", "load", "docker-image", "--name", self.name, *IMAGES.values())

    def down(self) -> None:
        run(self.report, "kind", "delete", "cluster", "--name", self.name)

    def kubectl(self) -> Kubectl:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec"
        config = folder / "kind.kubeconfig"
        config.parent.mkdir(parents=True, exist_ok=True)
        # A separate file does not change the user's current context.
        run(
            self.report,
            "kind",
            "export",
            "kubeconfig",
            "--name",
            self.name,
            "--kubeconfig",
            str(config),
        )
        return Kubectl("kubectl", {"KUBECONFIG": str(config)})

    def _clusters(self) -> list[str]:
        argv = ["kind", "get", "clusters"]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
        )
        if done.returncode != 0:
            raise DemoError(
                f"kind cannot list its clusters ({done.stderr.strip()}); start Docker", 2
            )
        return done.stdout.split()


def machine(kind: Literal["node", "kind"], report: Report) -> Machine:
    """Return the machine for `CLUSTER=...`."""
    return Kind(report) if kind == "kind" else Node(report)
