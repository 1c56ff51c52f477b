"""Read a resource from a YAML file as the API server and the operator would.

`specdec plan`, `specdec render` and `specdec migrate` use it. Every error is one sentence with the
field, its value and the fix; the API server's verdict has one line for each problem.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from specdec.api.model import API_VERSION, KIND, SpeculativeModel, explain
from specdec.tools.dry_run import yaml_reader
from specdec.tools.dry_run.admission import admit

DEFAULT_NAMESPACE = "default"
UNKNOWN_UID = "known-in-the-cluster"
Body = dict[str, Any]


class InputError(Exception):
    """The input is invalid: one sentence with the field, its value and the fix."""


class RefusedError(InputError):
    """The API server would refuse the resource: one line for each problem."""


def read(
    path: str,
    version: str | None = None,
    before: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> Body:
    """Read the SpeculativeModel in a YAML file (`-` is stdin), without its status.

    Args:
        path: a file with one or several documents; other kinds are ignored.
        version: replaces spec.runtime.version.
        before: the file of the current resource; if its name is the same, rules on changes apply.
        namespace: of a resource that names none.

    Raises:
        InputError: a file does not have exactly one resource.
        RefusedError: the API server would refuse the resource, or the current one.
    """
    current = None if before is None else complete(load(before), before, namespace=namespace)
    return complete(load(path), path, version, current, namespace)


def load(path: str) -> Body:
    """The SpeculativeModel in a YAML file (`-` is stdin) as it is written.

    Raises:
        InputError: the file does not have exactly one resource, or its metadata or spec is not an
            object.
    """
    resources = [item for item in _documents(path) if item.get("kind") == KIND]
    if len(resources) != 1:
        raise InputError(
            f"{path} holds {len(resources)} objects of kind {KIND}: give a file with one"
        )
    return _checked(resources[0], path)


def load_all(path: str) -> list[Body]:
    """Every object of a YAML file (`-` is stdin) in its order, with the items of a List.

    Raises:
        InputError: the file has no SpeculativeModel, or its metadata or spec is not an object.
    """
    objects = [
        item
        for document in _documents(path)
        for item in (document["items"] if _is_list(document) else [document])
    ]
    if not any(item.get("kind") == KIND for item in objects):
        raise InputError(f"{path} holds no object of kind {KIND}: give a file with one")
    return [_checked(item, path) if item.get("kind") == KIND else item for item in objects]


def _is_list(document: Body) -> bool:
    """Whether a document is a List, which `kubectl get` prints for several objects."""
    items = document.get("items")
    is_list = str(document.get("kind", "")).endswith("List") and isinstance(items, list)
    return is_list and all(isinstance(item, dict) for item in items or ())


def _checked(body: Body, path: str) -> Body:
    if body.get("apiVersion") != API_VERSION:
        raise InputError(
            f"{path}: apiVersion is {body.get('apiVersion')!r:.100}: this release reads "
            f"{API_VERSION}"
        )
    if not isinstance(body.get("spec"), dict) or not isinstance(body.get("metadata"), dict):
        raise InputError(f"{path}: metadata and spec are missing or not objects: write both")
    return body


def complete(
    body: Body,
    path: str,
    version: str | None = None,
    before: Body | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> Body:
    """The resource as the API server would store it, with a namespace, uid and generation.

    Args:
        body: the resource as it is written.
        path: its file, for messages.
        version: replaces spec.runtime.version.
        before: the current resource; if its name is the same, rules on changes apply too.
        namespace: of a resource that names none.

    Raises:
        RefusedError: the API server would refuse the resource, or the current one.
    """
    defaults = {"namespace": namespace, "uid": UNKNOWN_UID, "generation": 1}
    body = {**body, "metadata": defaults | body["metadata"]}
    runtime = body["spec"].get("runtime")
    if version is not None and isinstance(runtime, dict):
        body["spec"] = {**body["spec"], "runtime": {**runtime, "version": version}}
    try:
        verdict = admit(body, before if before and _is_same(before, body) else None)
    except RecursionError as error:
        raise InputError(f"{path}: a field has too many levels: remove some") from error
    if verdict.problems:
        raise RefusedError("\n".join(f"{path}: {problem}" for problem in verdict.problems))
    try:
        SpeculativeModel.parse(verdict.body)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from error
    return verdict.body


def _is_same(before: Body, after: Body) -> bool:
    keys = ("name", "namespace")
    return all(before["metadata"].get(key) == after["metadata"].get(key) for key in keys)


def _documents(path: str) -> list[Body]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = yaml_reader.documents(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): name a YAML file") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())[:300]
        raise InputError(f"{path} is not valid YAML ({where}): correct it") from error
    return [item for item in documents if isinstance(item, dict)]
