"""What resources use on a claim: the names of checkpoints, engines and repositories.

A resource uses the names in its status, including the history, and the repositories that its live
servers serve. It also uses the directories that the manifests of these repositories list. A
manifest is the list of all files that the servers of a repository read. It is on the volume, so
only a Job can read it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.jobs.prune import CHECKPOINTS, ENGINES, KINDS, REPOSITORIES
from specdec.pipeline.observed import Object

Directories = dict[str, list[str]]
Names = dict[str, set[str]]
"""Names of directories by folder of the volume."""


def named(status: Mapping[str, Any]) -> Names:
    """The names in a status outside its history: of the desired and of the serving revision."""
    return {
        CHECKPOINTS: {item.get("digest", "") for item in status.get("models", [])} - {""},
        ENGINES: {item.get("key", "") for item in status.get("engines", [])} - {""},
        REPOSITORIES: {
            status.get("repository", {}).get("hash", ""),
            status.get("serving", {}).get("revision", ""),
        }
        - {""},
    }


def in_history(status: Mapping[str, Any]) -> Names:
    """What the revisions in the history of a status use."""
    history = status.get("history", [])
    return {
        CHECKPOINTS: {name for item in history for name in item.get("checkpoints", [])},
        ENGINES: {name for item in history for name in item.get("engines", [])},
        REPOSITORIES: {item["revision"] for item in history},
    }


def merged(*parts: Mapping[str, Iterable[str]]) -> Names:
    """The union by folder."""
    return {kind: {name for part in parts for name in part.get(kind, ())} for kind in KINDS}


def without(left: Mapping[str, Iterable[str]], right: Mapping[str, Iterable[str]]) -> Names:
    """The names in `left` that are not in `right`, by folder."""
    return {kind: set(left.get(kind, ())) - set(right.get(kind, ())) for kind in KINDS}


def claim_of(body: Mapping[str, Any]) -> str:
    """The claim of a resource, also of one that the API server would refuse today."""
    storage = body.get("spec", {}).get("storage") or {}
    return names.claim(storage.get("existingClaim"), body["metadata"]["name"])


def keep(bodies: Iterable[Object], servers: Iterable[Object], claim: str) -> Directories:
    """The names that resources use, by folder of the volume.

    Args:
        bodies: the resources of the claim's namespace.
        servers: the live workloads of that namespace, which may serve an earlier repository.
        claim: the name of the claim whose directories are kept.
    """
    used: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for body in bodies:
        if claim_of(body) == claim:
            status = body.get("status", {})
            for kind, values in merged(named(status), in_history(status)).items():
                used[kind] |= values
        for kind, name in _sources(body.get("spec"), claim):
            used[kind].add(name)
    for server in servers:
        annotations = server["metadata"].get("annotations", {})
        used[REPOSITORIES].add(annotations.get(names.REPOSITORY, ""))
    return {kind: sorted(values - {""}) for kind, values in used.items()}


def _sources(value: Any, claim: str) -> Iterator[tuple[str, str]]:
    """Directories of the volume that a spec names as a source, such as a prebuilt engine."""
    if isinstance(value, list):
        for item in value:
            yield from _sources(item, claim)
    elif isinstance(value, dict):
        if value.get("claimName") == claim:
            parts = Path(str(value.get("path", ""))).parts
            if len(parts) > 1 and parts[0] in KINDS:
                yield parts[0], parts[1]
        for item in value.values():
            yield from _sources(item, claim)
