"""Read a resource from a YAML file as the API server and the operator would.

`specdec plan` and `specdec render` call `read`. Every error is one sentence with the field, its
value and the fix.
"""

import difflib
import json
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from specdec.api.model import API_VERSION, KIND, Spec, SpeculativeModel, explain
from specdec.api.tables import LOADER

UNKNOWN_UID = "known-in-the-cluster"
# The API server's rules. Names also become names of files here.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Body = dict[str, Any]


class InputError(Exception):
    """The input is invalid: one sentence with the field, its value and the fix."""


def read(path: str, version: str | None = None) -> Body:
    """Read the SpeculativeModel in a YAML file (`-` is stdin), without its status.

    Args:
        path: a file with one or several documents; other kinds are ignored.
        version: replaces spec.runtime.version.

    Raises:
        InputError: the file does not have exactly one resource, or a field is invalid.
    """
    return complete(load(path), path, version)


def load(path: str) -> Body:
    """The SpeculativeModel in a YAML file (`-` is stdin) as it is written.

    Raises:
        InputError: the file does not have exactly one resource, or its objects are not objects.
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
        InputError: the file has no SpeculativeModel, or its objects are not objects.
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
    """Whether it is what `kubectl get` prints for several objects."""
    items = document.get("items")
    is_list = str(document.get("kind", "")).endswith("List") and isinstance(items, list)
    return is_list and all(isinstance(item, dict) for item in items or ())


def _checked(body: Body, path: str) -> Body:
    if body.get("apiVersion") != API_VERSION:
        raise InputError(
            f"{path}: apiVersion is {body.get('apiVersion')!r}: this release reads {API_VERSION}"
        )
    if not isinstance(body.get("spec"), dict) or not isinstance(body.get("metadata"), dict):
        raise InputError(f"{path}: metadata and spec are missing or not objects: write both")
    return body


def complete(body: Body, path: str, version: str | None = None) -> Body:
    """Check a resource, and set what only a cluster would: its namespace, uid and generation.

    Raises:
        InputError: a field is unknown or invalid.
    """
    spec, metadata = body["spec"], body["metadata"]
    for problem in _unknown_fields(Spec, spec, "spec"):
        raise InputError(f"{path}: {problem}")
    if version is not None and isinstance(spec.get("runtime"), dict):
        spec["runtime"]["version"] = version
    defaults = {"namespace": "default", "uid": UNKNOWN_UID, "generation": 1}
    completed = {**body, "metadata": defaults | metadata}
    completed.pop("status", None)
    try:
        model = SpeculativeModel.parse(completed)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from error
    _require_valid_names(path, model)
    return completed


def _require_valid_names(path: str, model: SpeculativeModel) -> None:
    if not _NAME.fullmatch(model.metadata.name):
        raise InputError(
            f"{path}: metadata.name is {model.metadata.name!r:.100}: start with a letter and use "
            "at most 40 lower-case letters, digits and '-', as in llama-8b"
        )
    if not _NAMESPACE.fullmatch(model.metadata.namespace):
        raise InputError(
            f"{path}: metadata.namespace is {model.metadata.namespace!r:.100}: use at most 63 "
            "lower-case letters, digits and '-'"
        )


def _documents(path: str) -> list[Body]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        # As kubectl does: dates and all keys become texts.
        documents = json.loads(json.dumps(list(yaml.load_all(text, Loader=LOADER)), default=str))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): name a YAML file") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())[:300]
        raise InputError(f"{path} is not valid YAML ({where}): correct it") from error
    return [item for item in documents if isinstance(item, dict)]


def _unknown_fields(kind: type[BaseModel], value: Mapping[str, Any], path: str) -> Iterator[str]:
    """One sentence per field that the API lacks; the API server would drop or refuse it."""
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    for name, inner in value.items():
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, n=1)
            known = ", ".join(sorted(fields))
            fix = f"did you mean {near[0]}?" if near else f"use one of {known}"
            yield f"{path} has no field {str(name)[:100]!r}: {fix}"
            continue
        nested = _nested_model(fields[name].annotation)
        if nested is not None and isinstance(inner, Mapping):
            yield from _unknown_fields(nested, inner, f"{path}.{name}")


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    """The model class of a field; None for plain values and for objects of Kubernetes."""
    for kind in (annotation, *typing.get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
