"""Who speaks to the API server: the operator as its service account, a person by a kubeconfig."""

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

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class LoginError(ClusterError):
    """There is nothing to log in with, or it cannot be used."""


@dataclass(frozen=True)
class Session:
    """A person's access to a cluster.

    Attributes:
        cluster: speaks with that person's rights.
        namespace: the one that the login names, else `default`.
    """

    cluster: Cluster
    namespace: str


def pod_server() -> str:
    """The API server's URL as the kubelet states it to every pod; empty outside a pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


@asynccontextmanager
async def connect() -> AsyncIterator[Cluster]:
    """A Cluster logged in as the pod's service account, else by KUBECONFIG or ~/.kube/config."""
    settings = Configuration()
    try:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await _load_kubeconfig(settings)
    settings.retries = None  # the queue backs off; a second layer would only hide trouble
    async with ApiClient(settings) as client:
        yield Cluster(client)


async def _load_kubeconfig(settings: Configuration) -> None:
    try:
        await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise LoginError(
            f"no login to a cluster: neither a service account of a pod nor a kubeconfig ({error})"
        ) from error


@asynccontextmanager
async def as_person(context: str | None = None) -> AsyncIterator[Session]:
    """A session as kubectl would have it; raises LoginError.

    By KUBECONFIG or ~/.kube/config, and inside a pod without either by its service account.
    `context` takes the place of the kubeconfig's current one.
    """
    settings = Configuration()
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if _files(files):
        namespace = await _by_kubeconfig(settings, files, context)
    elif context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        namespace = _by_account(settings)
    else:
        raise LoginError(
            f"there is no kubeconfig {files}: set KUBECONFIG to the file of your cluster's login"
        )
    settings.retries = None
    try:
        client = ApiClient(settings)
    except (OSError, ValueError) as error:  # certificates that are none
        raise LoginError(f"the certificates of kubeconfig {files} cannot be used") from error
    async with client:
        yield Session(Cluster(client), namespace)


async def _by_kubeconfig(settings: Configuration, files: str, context: str | None) -> str:
    """Fill in the settings; returns the context's namespace.

    What the library says of a broken file may hold the file's tokens: its words are not repeated.
    """
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            files, context=context, client_configuration=settings, persist_config=False
        )
        chosen: dict[str, Any] = loader.current_context["context"]
    except config.ConfigException as error:
        names = _contexts(files)
        wanted = f"context {context}" if context else "its current context"
        hint = f"; it has {', '.join(names)}: choose one by --context" if names else ""
        raise LoginError(f"kubeconfig {files}: {wanted} cannot be used{hint}") from error
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise LoginError(
            f"kubeconfig {files} cannot be read as one: try kubectl config view"
        ) from error
    return str(chosen.get("namespace") or "default")


def _files(paths: str) -> list[Path]:
    """Those of the files of a KUBECONFIG that exist."""
    named = (Path(one).expanduser() for one in paths.split(os.pathsep) if one)
    return [path for path in named if path.is_file()]


def _contexts(paths: str) -> list[str]:
    """Names of the contexts of kubeconfigs that have been read before."""
    found: list[str] = []
    for path in _files(paths):
        listed = (yaml.safe_load(path.read_text("utf-8")) or {}).get("contexts") or []
        found += [str(one["name"]) for one in listed if isinstance(one, dict) and "name" in one]
    return found


def _by_account(settings: Configuration) -> str:
    try:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise LoginError(f"the service account of this pod cannot be used: {error}") from error
    return (_ACCOUNT / "namespace").read_text("utf-8").strip()
