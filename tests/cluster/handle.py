"""The clusters as context managers, for test fixtures."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any, Self

from cluster import (
    archive,
    binaries,
    folders,
    images,
    lifecycle,
    node,
    processes,
    registry,
    state,
)
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.progress import report
from cluster.state import Options, State, User


class Cluster:
    """A context manager that starts a cluster on enter and takes it down on exit.

    With keep, the cluster stays up, and a running cluster with the same options is reused. Without
    keep, the next start of any cluster takes it down if this process was killed.
    """

    def __init__(self, name: str, options: Options, *, keep: bool = False) -> None:
        self.name = name
        self.options = options
        self.keep = keep
        self._owner = None if keep else processes.this()
        self._state: State | None = None

    def __enter__(self) -> Self:
        lifecycle.sweep(report)
        live = state.load(self.name)
        if live and not (self.keep and live.options == self.options):
            lifecycle.down(self.name, report)
        self._state = lifecycle.up(self.name, self.options, report, owner=self._owner)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            lifecycle.down(self.name, report)

    @property
    def state(self) -> State:
        """The recorded state of the cluster.

        Raises:
            ClusterError: the cluster is not up yet.
        """
        if self._state is None:
            raise ClusterError(f"The cluster {self.name} is used before it is up.")
        return self._state

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state.kubeconfig

    @property
    def logs(self) -> Path:
        """The folder with one log for each program."""
        return self.state.folder / "logs"

    @property
    def audit_log(self) -> Path:
        """The log of the requests of the user in the option `audited`: one JSON object a line."""
        return self.logs / "audit.log"

    def user(self, name: str) -> Path:
        """Return the kubeconfig of a user who is in the cluster's options."""
        file = self.state.user(name)
        if not file.exists():
            raise ClusterError(f"The cluster {self.name} was started without the user {name!r}.")
        return file

    def service_account(self, namespace: str, name: str, seconds: int = 86400) -> Path:
        """Return a kubeconfig that authenticates as a service account, which must exist.

        The API server issues its token, which becomes invalid when the account is deleted.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"spec": {"expirationSeconds": seconds}}
        answer = Api(self.kubeconfig).call("POST", path, body)
        text = state.kubeconfig(self.state, f"{namespace}.{name}", answer["status"]["token"])
        file = self.state.folder / "users" / f"sa.{namespace}.{name}.kubeconfig"
        return folders.write(file, text, 0o600)

    def kubectl(self, *args: str, stdin: str | None = None, user: Path | None = None) -> str:
        """Run kubectl and return what it printed.

        Raises:
            ClusterError: kubectl failed; carries its message.
        """
        argv = [*self.kubectl_argv(user), *args]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(done.stderr.strip() or f"kubectl exited {done.returncode}")
        return done.stdout

    def kubectl_argv(self, user: Path | None = None) -> list[str]:
        """Return the first arguments of a kubectl command."""
        cache = f"--cache-dir={self.state.folder / 'kubectl-cache'}"
        return [str(binaries.path("kubectl")), f"--kubeconfig={user or self.kubeconfig}", cache]

    def get(self, *args: str) -> Any:
        """Run `kubectl get ARGS` and return the parsed JSON."""
        return json.loads(self.kubectl("get", *args, "-o", "json"))


class ControlPlane(Cluster):
    """A control plane without a real node; with kwok, its nodes and pods are simulated."""

    def __init__(self, name: str, *, keep: bool = False, **options: Any) -> None:
        chosen = Options(kind="control-plane", **{"kwok": True, **options})
        super().__init__(name, chosen, keep=keep)

    def finish(
        self,
        namespace: str,
        pod: str,
        *,
        message: str = "",
        exit_code: int = 0,
        reason: str | None = None,
    ) -> None:
        """End the running pod of a Job; the pod succeeds if and only if exit_code is 0.

        The cluster needs hold_jobs=True: otherwise the pod ends by itself before this call.
        """
        outcome = {
            "outcome": "fail" if exit_code else "succeed",
            "exit-code": str(exit_code),
            "message": message,
            "reason": reason or ("Error" if exit_code else "Completed"),
        }
        annotations = {f"sim.specdec.dev/{key}": value for key, value in outcome.items()}
        Api(self.kubeconfig).call(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/pods/{pod}",
            {"metadata": {"annotations": annotations}},
            "application/merge-patch+json",
        )


class Node(Cluster):
    """A control plane with one real node; it needs root on Linux."""

    def __init__(self, name: str, *, keep: bool = False, **options: Any) -> None:
        super().__init__(name, Options(kind="node", **options), keep=keep)

    def load(self, target: str, tag: str | None = None, file: str = "Dockerfile") -> str:
        """Build the Dockerfile's target if needed, load it, and return the name that pods use.

        Args:
            target: the stage of `file` that becomes the image.
            tag: the name of the image; None derives the name from the target.
            file: path of the Dockerfile in the repository; its folder is the context.
        """
        image = images.build(target, tag or images.default_tag(target), report, file)
        archive.load_built(self.state, image.tag, image.id)
        return image.tag

    def push(self, target: str, tag: str) -> str:
        """Build the Dockerfile's target if needed, and push it to the node's own registry.

        Pods pull the image by `tag`, a released name. Returns its name in the node's registry.
        """
        registry.start(self.state, report)
        return registry.push(self.state, images.build(target, tag, report).tag)

    @property
    def registry(self) -> str:
        """Host and port of the node's own registry, which has no TLS; `push` starts it."""
        return registry.address(self.state)

    def offer_gpus(self, count: int) -> None:
        """Let the node offer this number of simulated GPUs."""
        node.offer_gpus(self.state, count)

    def volume(self, name: str) -> Path:
        """Return the folder of the volume called name, such as pv-01."""
        return self.state.folder / "volumes" / name


def users(names: dict[str, tuple[str, ...]]) -> tuple[User, ...]:
    """Return users from a mapping of names to groups."""
    return tuple(User(name, groups) for name, groups in names.items())


def attach(name: str) -> Cluster:
    """Return the running cluster called name; the returned object never takes it down.

    Raises:
        ClusterError: the cluster is not up.
    """
    live = state.load(name)
    if live is None or not lifecycle.running(live):
        raise ClusterError(f"The cluster {name} is not up; `up --name {name}` starts it.")
    cluster = Cluster(name, dataclasses.replace(live.options), keep=True)
    cluster._state = live
    return cluster
