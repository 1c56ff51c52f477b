"""The ConfigMap with the rendered model repository, and the Job that publishes it.

A ConfigMap's keys are flat and a repository is nested: each file gets a key of its own and the
Job's volume projects the keys back to their paths.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api import names
from specdec.api.children import Tags
from specdec.api.model import SpeculativeModel
from specdec.desired.child import NO_TAGS, metadata
from specdec.desired.fetch import own_job
from specdec.desired.pod import Container, Volume
from specdec.triton.repository import libraries

FILES = "/specdec/repository"
EXPECTATIONS = "/specdec/expectations"
EXPECTATIONS_KEY = "expectations.json"
# The API server's limit on one ConfigMap, less room for metadata.
LIMIT_BYTES = 1024 * 1024 - 16 * 1024
# Seconds. The Job writes small files, but reads engines, which takes long on a slow volume.
_DEADLINE = 6 * 3600
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"memory": "256Mi"},
}


def content_hash(
    files: Mapping[str, str], engines: Sequence[Mapping[str, Any]], volume: Volume
) -> str:
    """The content hash of a repository: its files, what it expects of engines, and its volume."""
    content = {"files": dict(files), "engines": list(engines), "volume": volume.identity}
    return names.digest(content)


def job_name(model: SpeculativeModel, repository_hash: str) -> str:
    """The name of the publish Job and of its ConfigMap."""
    return names.job_name(model, "publish", repository_hash)


def config_map(
    model: SpeculativeModel,
    repository_hash: str,
    files: Mapping[str, str],
    engines: Sequence[Mapping[str, Any]],
    checkpoints: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """All files of the repository, and what the Job checks before it publishes them.

    Raises:
        ValueError: the files do not fit into one ConfigMap.
    """
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    expectations = {
        "hash": repository_hash,
        "files": digests,
        "libraries": libraries(files),
        "engines": list(engines),
        "checkpoints": dict(checkpoints or {}),
    }
    data = {_key(path): text for path, text in files.items()}
    data[EXPECTATIONS_KEY] = names.canonical(expectations)
    size = sum(len(key) + len(text.encode()) for key, text in data.items())
    if size > LIMIT_BYTES:
        raise ValueError(
            f"the model repository has {size} bytes and a ConfigMap holds {LIMIT_BYTES}: shorten "
            "the method's choices or spec.runtime.parameters"
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(model, repository_hash),
        "data": data,
    }


def job(
    model: SpeculativeModel,
    repository_hash: str,
    paths: Sequence[str],
    volume: Volume,
    image: str,
    *,
    content: bool = False,
) -> dict[str, Any]:
    """The publish Job; `image` is the operator's own, `paths` are the repository's files.

    With `content` it compares the content of every file that servers read.
    """
    name = job_name(model, repository_hash)
    container = Container(
        name="publish",
        image=image,
        pull_policy="IfNotPresent",
        command=[
            *("python", "-m", "specdec.jobs.publish", "--repository", FILES),
            *("--expectations", f"{EXPECTATIONS}/{EXPECTATIONS_KEY}"),
            *(["--content"] if content else []),
        ],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        mounts=[
            {"name": "repository", "mountPath": FILES, "readOnly": True},
            {"name": "expectations", "mountPath": EXPECTATIONS, "readOnly": True},
        ],
        resources=_RESOURCES,
    )
    items = [{"key": _key(path), "path": path} for path in sorted(paths)]
    expected = [{"key": EXPECTATIONS_KEY, "path": EXPECTATIONS_KEY}]
    volumes = [
        {"name": "repository", "configMap": {"name": name, "items": items}},
        {"name": "expectations", "configMap": {"name": name, "items": expected}},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(model, repository_hash, model.spec.metadata.jobs),
        "spec": own_job(model, container, volume, "publish", volumes, _DEADLINE),
    }


def _metadata(
    model: SpeculativeModel, repository_hash: str, tags: Tags = NO_TAGS
) -> dict[str, Any]:
    short = {names.REPOSITORY: repository_hash[:16]}
    return metadata(model, job_name(model, repository_hash), "publish", labels=short, tags=tags)


def _key(path: str) -> str:
    """A ConfigMap key for a path: readable, and distinct for distinct paths."""
    short = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{short}-{path.rpartition('/')[2]}"
