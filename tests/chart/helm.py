"""Calls Helm for the tests, and selects parts of the objects that it renders."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import binaries
from support.documents import load_all

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "specdec-operator"
MODEL_CHART = ROOT / "charts" / "specdec-model"
INSTALL = ROOT / "manifests" / "install"
NAMESPACED = ROOT / "manifests" / "install-namespaced"
RELEASE, NAMESPACE = "specdec-operator", "specdec-system"

Object = dict[str, Any]


class HelmError(Exception):
    """Helm failed; carries its message."""


@dataclass(frozen=True)
class Helm:
    """The pinned binary, with its own home directory so that no user's settings apply."""

    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *args: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run `helm ARGS` and return its output.

        Helm reads `values` from its standard input; None passes no values.

        Raises:
            HelmError: Helm failed.
        """
        given = () if values is None else ("--values", "-")
        argv = [str(binaries.path("helm")), *map(str, args), *given]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            # Without a cluster this file is missing, so that Helm cannot reach any cluster.
            "KUBECONFIG": str(self.kubeconfig or self.home / "none"),
        }
        text = json.dumps(values or {})
        done = subprocess.run(
            argv, input=text, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise HelmError(done.stderr.strip())
        return done.stdout

    def template(
        self, values: Mapping[str, Any] | None = None, *, release: str = RELEASE
    ) -> list[Object]:
        """Return the rendered objects of a release, including hooks."""
        version = f"--kube-version={binaries.KUBERNETES}"
        text = self(
            "template", release, CHART, "--namespace", NAMESPACE, version, values=values or {}
        )
        return [body for body in load_all(text) if body]


def kustomized(folder: Path) -> list[Object]:
    """Return the objects that `kubectl kustomize` renders from a folder."""
    argv = [str(binaries.path("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return load_all(done.stdout)


def single(objects: list[Object], kind: str) -> Object:
    """Return the only object of a kind."""
    (only,) = [o for o in objects if o["kind"] == kind]
    return only


def kinds(objects: list[Object]) -> set[str]:
    return {o["kind"] for o in objects}


def pods(objects: list[Object]) -> list[Object]:
    """Return the specs of all pods: the operator's pod and the pod of the test hook."""
    templates = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]
    return templates + [o["spec"] for o in objects if o["kind"] == "Pod"]


def images(objects: list[Object]) -> list[str]:
    """Return the images of all containers."""
    return [container["image"] for pod in pods(objects) for container in pod["containers"]]


def operator(objects: list[Object]) -> Object:
    """Return the operator's container."""
    container: Object = single(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return container


def environment(objects: list[Object]) -> dict[str, str]:
    """Return the environment variables of the operator."""
    return {e["name"]: e.get("value", "") for e in operator(objects)["env"]}
