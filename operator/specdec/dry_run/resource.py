"""Read a resource from a file the way the API server and the operator would."""

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

UNKNOWN_UID = "known-in-the-cluster"
# The API server's own rules; here the names also become those of files.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Body = dict[str, Any]


class InputError(Exception):
    """What was given cannot be read: one sentence with field, value and mend."""


def read(path: str, version: str | None = None) -> Body:
    """The one SpeculativeModel of a YAML file (`-` is stdin), without its status.

    Args:
        path: a file of one or several documents; objects of other kinds are passed over.
        version: takes the place of spec.runtime.version.

    Raises:
        InputError: there is no such resource in it, or one of its fields cannot be read.
    """
    found = [one for one in _documents(path) if one.get("kind") == KIND]
    if len(found) != 1:
        raise InputError(f"{path} holds {len(found)} objects of kind {KIND}: give a file with one")
    body = found[0]
    if body.get("apiVersion") != API_VERSION:
        raise InputError(
            f"{path}: apiVersion is {body.get('apiVersion')!r}: this release reads {API_VERSION}"
        )
    spec, metadata = body.get("spec"), body.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise InputError(f"{path}: metadata and spec must be there, as objects")
    for problem in _unknown(Spec, spec, "spec"):
        raise InputError(f"{path}: {problem}")
    if version is not None and isinstance(spec.get("runtime"), dict):
        spec["runtime"]["version"] = version
    known = {"namespace": "default", "uid": UNKNOWN_UID, "generation": 1}
    complete = {**body, "metadata": known | metadata}
    complete.pop("status", None)
    try:
        model = SpeculativeModel.parse(complete)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from error
    _require_names(path, model)
    return complete


def _require_names(path: str, model: SpeculativeModel) -> None:
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
        # As kubectl sends it: dates are texts and every key is one.
        found = json.loads(json.dumps(list(yaml.load_all(text, Loader=_LOADER)), default=str))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): name a YAML file") from error
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())[:300]
        raise InputError(f"{path} is not YAML ({where}): correct it") from error
    return [one for one in found if isinstance(one, dict)]


# The same safe reader in C where PyYAML was built with it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _unknown(kind: type[BaseModel], value: Mapping[str, Any], path: str) -> Iterator[str]:
    """Sentences about fields that the API has not: the API server would drop or refuse them."""
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    for name, inner in value.items():
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, n=1)
            mend = f"did you mean {near[0]}?" if near else f"it knows {', '.join(sorted(fields))}"
            yield f"{path} has no field {str(name)[:100]!r}: {mend}"
            continue
        part = _part(fields[name].annotation)
        if part is not None and isinstance(inner, Mapping):
            yield from _unknown(part, inner, f"{path}.{name}")


def _part(annotation: Any) -> type[BaseModel] | None:
    """The part of the spec that a field holds; None for plain values and pod-shaped ones."""
    for kind in (annotation, *typing.get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
