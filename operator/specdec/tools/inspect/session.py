"""Log a person in to a cluster, and convert the cluster's errors to those of the client.

All commands about a running cluster, such as `status`, call it. A `ClientError` has one sentence
and an exit status.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from specdec.api.model import API_VERSION, KIND
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.cluster import Cluster, ClusterError, Missing, Transient
from specdec.cluster.login import LoginError, Session, as_person
from specdec.tools.terminal import plain

Json = dict[str, Any]
# How many names to suggest if a name does not exist.
_MAX_SUGGESTIONS = 8


@asynccontextmanager
async def logged_in(context: str | None = None) -> AsyncIterator[Session]:
    """The cluster of the caller's kubeconfig.

    Raises:
        BadRequestError: there is no kubeconfig, no such context or no such resource.
        RefusedError: the API server forbids a request to this person.
        UnreachableError: the connection failed or timed out.
    """
    try:
        async with as_person(context) as session:
            yield session
    except ClusterError as error:
        raise client_error(error) from error


def client_error(error: ClusterError) -> ClientError:
    """The error of a command for an error of the cluster."""
    message = plain(str(error))
    if isinstance(error, LoginError | Missing):
        return BadRequestError(message)
    if getattr(error.__cause__, "status", None) == 401:
        return RefusedError(f"{message}: log in again, or select another --context")
    if isinstance(error, Transient):
        return UnreachableError(message)
    return RefusedError(message)


async def resources(cluster: Cluster, namespace: str | None) -> list[Json]:
    """Every SpeculativeModel in a namespace, or in all; raises ClusterError, BadRequestError."""
    try:
        bodies = await cluster.list(API_VERSION, KIND, namespace)
    except Missing as error:
        raise BadRequestError(
            f"the cluster has no kind {KIND} ({API_VERSION}): install the operator first"
        ) from error
    return sorted(bodies, key=_namespace_and_name)


async def resource(cluster: Cluster, namespace: str, name: str) -> Json:
    """One SpeculativeModel; raises ClusterError, BadRequestError."""
    body = await cluster.get(API_VERSION, KIND, namespace, name)
    if body is not None:
        return body
    others = [other["metadata"]["name"] for other in await resources(cluster, namespace)]
    hint = f"it has {', '.join(others[:_MAX_SUGGESTIONS])}" if others else "it has none"
    raise BadRequestError(f"there is no {KIND} {name} in namespace {namespace}: {hint}")


def _namespace_and_name(body: Json) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]
