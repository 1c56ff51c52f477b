"""Read everything of a resource for a report, with the rights of the caller's kubeconfig.

It reads no Secret. What cannot be read becomes a note; only the resource itself is required.
"""

import asyncio
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specdec import __version__
from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.cluster import ClusterError, Missing
from specdec.cluster.person import PersonCluster
from specdec.tools.inspect import session, snapshot, status
from specdec.tools.inspect.checks import reading
from specdec.tools.inspect.checks.facts import Facts
from specdec.tools.inspect.report.packing import Material

Json = dict[str, Any]
_CLAIM = ("v1", "PersistentVolumeClaim")
# Jobs and pods are not in this list: `_children` also reads those that several resources share.
_KINDS = (
    ("apps/v1", "Deployment"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    _CLAIM,
)
_OPTIONAL = (
    (names.GROUP_API, names.GROUP_KIND),
    *((kind.version, name) for name, kind in OPTIONAL_KINDS.items()),
)


@dataclass(frozen=True)
class ReportSource:
    """Where a report is read from.

    Attributes:
        cluster: logged in as the caller.
        namespace: of the resource.
        operator_namespace: of the operator, if the caller may not list all Deployments.
        is_current: whether a CustomResourceDefinition has the schema of this release.
    """

    cluster: PersonCluster
    namespace: str
    operator_namespace: str
    is_current: Callable[[Json], bool]


async def read(source: ReportSource, name: str) -> Material:
    """Everything about one resource.

    Raises:
        ClusterError: the API server does not respond, or the caller may not read the resource.
        BadRequestError: there is no such resource.
    """
    cluster, namespace = source.cluster, source.namespace
    body = await session.resource(cluster, namespace, name)
    facts = await reading.read(cluster, namespace, source.operator_namespace, source.is_current)
    operators = facts.operators if isinstance(facts.operators, list) else []
    place = operators[0]["metadata"]["namespace"] if operators else source.operator_namespace
    kept = await snapshot.read(snapshot.SnapshotSource(cluster, namespace, place), name)
    objects = [body, *operators, *await _objects(source, body, kept.notes)]
    return Material(_about(facts, name), reading.output(facts), objects, kept)


async def _objects(source: ReportSource, body: Json, notes: list[str]) -> list[Json]:
    cluster, namespace = source.cluster, source.namespace
    name = body["metadata"]["name"]

    async def listed(kind: tuple[str, str], *, optional: bool = False) -> list[Json]:
        try:
            return await cluster.list(*kind, namespace, f"{names.MODEL}={name}")
        except ClusterError as error:
            if not (optional and isinstance(error, Missing)):
                notes.append(f"objects of the kind {kind[1]} are not included: {error}")
            return []

    lists = await asyncio.gather(
        _children(source, name, notes),
        _claim(source, body, notes),
        *(listed(kind) for kind in _KINDS),
        *(listed(kind, optional=True) for kind in _OPTIONAL),
    )
    # A claim that the resource names may also have its label, and is then read twice.
    distinct = {(item["kind"], item["metadata"]["name"]): item for part in lists for item in part}
    return list(distinct.values())


async def _children(source: ReportSource, name: str, notes: list[str]) -> list[Json]:
    """Jobs and pods, also of Jobs that several resources share."""
    try:
        children = await status.list_children(source.cluster, source.namespace, name)
    except ClusterError as error:
        notes.append(f"Jobs and pods are not included: {error}")
        return []
    notes += children.notes
    return children.jobs + children.pods


async def _claim(source: ReportSource, body: Json, notes: list[str]) -> list[Json]:
    """The claim of the resource, which may be the user's own."""
    given = body["spec"].get("storage", {}).get("existingClaim")
    name = given or f"{body['metadata']['name']}-models"
    try:
        claim = await source.cluster.get(*_CLAIM, source.namespace, name)
    except ClusterError as error:
        notes.append(f"claim {name} is not included: {error}")
        return []
    if claim is None:
        notes.append(f"claim {name} is not included: it does not exist")
    return [] if claim is None else [claim]


def _about(facts: Facts, name: str) -> Json:
    nodes = facts.nodes if isinstance(facts.nodes, list) else []
    kubelets = {item["status"].get("nodeInfo", {}).get("kubeletVersion", "") for item in nodes}
    return {
        "namespace": facts.namespace,
        "name": name,
        "specdec": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "kubernetes": facts.server,
        "kubelets": sorted(version for version in kubelets if version),
    }
