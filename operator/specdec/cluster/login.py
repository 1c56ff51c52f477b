"""Log in to a cluster: the operator by its service account, a person by a kubeconfig.

The controller calls `connect`, and commands about a running cluster call `as_person`. Both yield
access to a cluster, or raise a `LoginError`. The messages of `as_person` repeat no secrets of a
kubeconfig.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from specdec.cluster import Cluster, ClusterError
from specdec.cluster.person import PersonCluster

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class LoginError(ClusterError):
    """There are no credentials, or they cannot be used."""


@dataclass(frozen=True)
class Session:
    """A person's access to a cluster.

    Attributes:
        cluster: the API server, used with that person's rights.
        namespace: the namespace of the kubeconfig's context, or else `default`.
    """

    cluster: PersonCluster
    namespace: str


def pod_server() -> str:
    """The API server's URL from the environment that the kubelet sets; empty outside a pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


@asynccontextmanager
async def connect() -> AsyncIterator[Cluster]:
    """A Cluster for the pod's service account, or else for KUBECONFIG or ~/.kube/config."""
    settings = Configuration()
    try:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await _load_kubeconfig(settings)
    settings.retries = None  # the queue backs off; retries here would only hide failures
    settings.connection_pool_maxsize = 0  # unlimited: each watch holds a connection
    async with ApiClient(settings) as client:
        yield Cluster(client)


async def _load_kubeconfig(settings: Configuration) -> None:
    try:
        await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise LoginError(
            f"no login to a cluster: no service account of a pod and no valid kubeconfig ({error})"
        ) from error


@asynccontextmanager
async def as_person(context: str | None = None) -> AsyncIterator[Session]:
    """A session with the credentials that kubectl would use; raises LoginError.

    The credentials come from KUBECONFIG or ~/.kube/config. Inside a pod without either file, they
    come from its service account. `context` selects a context of the kubeconfig in place of its
    current one.
    """
    settings = Configuration()
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if _files(files):
        namespace = await _by_kubeconfig(settings, files, context)
    elif context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        namespace = _by_service_account(settings)
    else:
        raise LoginError(
            f"there is no kubeconfig {files}: set KUBECONFIG to the file of your cluster's login"
        )
    settings.retries = None
    try:
        client = ApiClient(settings)
    except (OSError, ValueError) as error:  # invalid certificates
        raise LoginError(f"kubeconfig {files} has certificates that cannot be read") from error
    async with client:
        yield Session(PersonCluster(client), namespace)


async def _by_kubeconfig(settings: Configuration, files: str, context: str | None) -> str:
    """Fill in the settings; returns the context's namespace.

    The library's messages about a broken file may quote its tokens, so they are not repeated.
    """
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            files, context=context, client_configuration=settings, persist_config=False
        )
        entry: dict[str, Any] = loader.current_context["context"]
    except config.ConfigException as error:
        names = _contexts(files)
        described = f"context {context}" if context else "its current context"
        hint = f"; it has {', '.join(names)}: select one with --context" if names else ""
        raise LoginError(f"kubeconfig {files}: {described} cannot be used{hint}") from error
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise LoginError(
            f"kubeconfig {files} is not valid: check it with kubectl config view"
        ) from error
    return str(entry.get("namespace") or "default")


def _files(paths: str) -> list[Path]:
    """The existing files of a KUBECONFIG, which is a list of paths."""
    files = (Path(path).expanduser() for path in paths.split(os.pathsep) if path)
    return [file for file in files if file.is_file()]


def _contexts(paths: str) -> list[str]:
    """The names of all contexts in valid kubeconfig files."""
    names: list[str] = []
    for path in _files(paths):
        listed = (yaml.safe_load(path.read_text("utf-8")) or {}).get("contexts") or []
        names += [
            str(item["name"]) for item in listed if isinstance(item, dict) and "name" in item
        ]
    return names


def _by_service_account(settings: Configuration) -> str:
    try:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise LoginError(f"this pod's service account cannot be used: {error}") from error
    return (_ACCOUNT / "namespace").read_text("utf-8").strip()
