"""Read the facts that `specdec check` judges, with the rights of the caller's kubeconfig."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from specdec.api import names
from specdec.api.model import API_VERSION, KIND
from specdec.cluster import Rejected
from specdec.cluster.person import PersonCluster, Right
from specdec.tools.inspect.checks import CRD, FORMAT, judge
from specdec.tools.inspect.checks.facts import RIGHTS, Facts, Json, Unread

T = TypeVar("T")
_DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_DEPLOYMENTS = ("apps/v1", "Deployment")


async def check(
    cluster: PersonCluster,
    namespace: str,
    operator_namespace: str,
    is_current: Callable[[Json], bool],
) -> Json:
    """All checks, as `specdec check --json` prints them.

    Args:
        cluster: logged in as the person whose rights are checked.
        namespace: the namespace in which that person works.
        operator_namespace: the operator's, for a person who may list Deployments only there.
        is_current: whether a CustomResourceDefinition has the schema of this release.

    Raises:
        ClusterError: the API server does not respond.
    """
    return output(await read(cluster, namespace, operator_namespace, is_current))


def output(facts: Facts) -> Json:
    """The verdicts on the facts, as `specdec check --json` prints them."""
    return {
        "format": FORMAT,
        "namespace": facts.namespace,
        "kubernetes": facts.server,
        "checks": [item.as_json() for item in judge(facts)],
    }


async def read(
    cluster: PersonCluster,
    namespace: str,
    operator_namespace: str,
    is_current: Callable[[Json], bool],
) -> Facts:
    """The facts about a cluster; arguments and errors are those of `check`."""
    server = str((await cluster.version()).get("gitVersion", ""))
    definition, served, operators, missing, nodes, classes = await asyncio.gather(
        _or_unread(cluster.get(*_DEFINITIONS, None, CRD)),
        cluster.serves(API_VERSION, KIND),
        _operators(cluster, operator_namespace),
        _missing_rights(cluster, namespace),
        _or_unread(cluster.list("v1", "Node", None)),
        _or_unread(cluster.list("storage.k8s.io/v1", "StorageClass", None)),
    )
    return Facts(
        namespace=namespace,
        server=server,
        definition=definition,
        served=served,
        same_schema=isinstance(definition, dict) and is_current(definition),
        operators=operators,
        missing_rights=missing,
        nodes=nodes,
        storage_classes=classes,
    )


async def _operators(cluster: PersonCluster, namespace: str) -> list[Json] | Unread:
    """The operators of all namespaces, or those of one if the person may list only there."""
    everywhere = await _or_unread(cluster.list(*_DEPLOYMENTS, None, names.OPERATOR))
    if not isinstance(everywhere, Unread):
        return everywhere
    return await _or_unread(cluster.list(*_DEPLOYMENTS, namespace, names.OPERATOR))


async def _missing_rights(cluster: PersonCluster, namespace: str) -> tuple[Right, ...]:
    results = await asyncio.gather(*(cluster.may(right, namespace) for right in RIGHTS))
    return tuple(right for right, allowed in zip(RIGHTS, results, strict=True) if not allowed)


async def _or_unread(request: Awaitable[T]) -> T | Unread:
    try:
        return await request
    except Rejected as error:
        return Unread(str(error))
