"""A person's session with the cluster, and its errors in a client's words and exit statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from specdec.api.model import API_VERSION, KIND
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.cluster import Cluster, ClusterError, Missing, Transient
from specdec.cluster.login import LoginError, Session, as_person
from specdec.terminal import plain

Json = dict[str, Any]
# So many names help somebody who mistyped one.
_NAMES = 8


@asynccontextmanager
async def logged_in(context: str | None = None) -> AsyncIterator[Session]:
    """The cluster of the caller's kubeconfig.

    Raises:
        BadRequestError: no kubeconfig, no such context, no such resource.
        RefusedError: the API server does not let this person do it.
        UnreachableError: nobody answers, or not in time.
    """
    try:
        async with as_person(context) as found:
            yield found
    except ClusterError as error:
        raise client_error(error) from error


def client_error(error: ClusterError) -> ClientError:
    """The error of a command for one of the cluster."""
    words = plain(str(error))
    if isinstance(error, LoginError | Missing):
        return BadRequestError(words)
    if getattr(error.__cause__, "status", None) == 401:
        return RefusedError(f"{words}: log in again, or choose another --context")
    if isinstance(error, Transient):
        return UnreachableError(words)
    return RefusedError(words)


async def resources(cluster: Cluster, namespace: str | None) -> list[Json]:
    """Every SpeculativeModel of a namespace, or of all; raises ClusterError, BadRequestError."""
    try:
        found = await cluster.list(API_VERSION, KIND, namespace)
    except Missing as error:
        raise BadRequestError(
            f"the cluster does not know {KIND} {API_VERSION}: install the operator first"
        ) from error
    return sorted(found, key=_place)


async def resource(cluster: Cluster, namespace: str, name: str) -> Json:
    """One SpeculativeModel; raises ClusterError, BadRequestError."""
    found = await cluster.get(API_VERSION, KIND, namespace, name)
    if found is not None:
        return found
    others = [one["metadata"]["name"] for one in await resources(cluster, namespace)]
    known = f"it has {', '.join(others[:_NAMES])}" if others else "it has none"
    raise BadRequestError(f"there is no {KIND} {name} in namespace {namespace}: {known}")


def _place(body: Json) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]
