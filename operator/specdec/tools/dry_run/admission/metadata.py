"""Check the metadata of a resource, which the CRD's schema does not describe."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from specdec.tools.dry_run.admission import name_forms
from specdec.tools.dry_run.admission.decoding import nearest
from specdec.tools.dry_run.admission.problem import Kind, Problem
from specdec.tools.dry_run.admission.structure import type_name

# Fields of ObjectMeta with their JSON types.
_FIELDS = {
    "annotations": "object",
    "creationTimestamp": "string",
    "deletionGracePeriodSeconds": "integer",
    "deletionTimestamp": "string",
    "finalizers": "array",
    "generateName": "string",
    "generation": "integer",
    "labels": "object",
    "managedFields": "array",
    "name": "string",
    "namespace": "string",
    "ownerReferences": "array",
    "resourceVersion": "string",
    "selfLink": "string",
    "uid": "string",
}
_TIMES = ("creationTimestamp", "deletionTimestamp")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)")
_MAPS = ("annotations", "labels")
_ANNOTATIONS_SIZE = 256 * 1024


def unknown_fields(metadata: dict[str, Any]) -> list[Problem]:
    """Fields that no object of Kubernetes has in its metadata."""
    return [
        Problem(f"metadata.{key}", Kind.UNKNOWN, hint=nearest(key, dict(_FIELDS)))
        for key in sorted(metadata.keys() - _FIELDS.keys())
    ]


def wrong_types(metadata: dict[str, Any]) -> Iterator[Problem]:
    """Fields whose JSON type is wrong; the API server cannot read such an object."""
    for key in _TIMES:
        if isinstance(metadata.get(key), str) and not _TIME.fullmatch(metadata[key]):
            sentence = "write a time, as in 2026-01-02T03:04:05Z, or remove it"
            yield Problem(f"metadata.{key}", Kind.TYPE, metadata[key], sentence)
    for key, value in metadata.items():
        yield from _wrong_type(value, _FIELDS.get(key, type_name(value)), f"metadata.{key}")
        if key in _MAPS and isinstance(value, dict):
            for name, text in value.items():
                yield from _wrong_type(text, "string", f"metadata.{key}.{name}")


def problems(metadata: dict[str, Any]) -> Iterator[Problem]:
    """Problems of names, labels, annotations and finalizers; types must be right."""
    name = metadata.get("name") or ""
    if name:
        yield from _invalid(name, name_forms.subdomain, "metadata.name")
    else:
        sentence, hint = "name or generateName is required", "`kubectl apply` needs metadata.name"
        yield Problem("metadata.name", Kind.REQUIRED, detail=sentence, hint=hint)
    if "namespace" in metadata:
        yield from _invalid(
            metadata["namespace"] or "", name_forms.dns_label, "metadata.namespace"
        )
    for key, value in (metadata.get("labels") or {}).items():
        yield from _invalid(key, name_forms.qualified_name, "metadata.labels")
        yield from _invalid(value or "", name_forms.label_value, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _invalid(
            key, lambda k: name_forms.qualified_name(k.lower()), "metadata.annotations"
        )
    size = sum(len(f"{key}{value or ''}".encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_SIZE:
        sentence = f"may not be more than {_ANNOTATIONS_SIZE} bytes"
        yield Problem("metadata.annotations", Kind.TOO_LONG, detail=sentence)
    for owner in metadata.get("ownerReferences") or []:
        yield from _owner(owner if isinstance(owner, dict) else {})
    for finalizer in metadata.get("finalizers") or []:
        yield from _invalid(str(finalizer), name_forms.qualified_name, "metadata.finalizers")


def _owner(owner: dict[str, Any]) -> Iterator[Problem]:
    for key in ("apiVersion", "kind", "name", "uid"):
        if not owner.get(key):
            sentence = f"{'version ' if key == 'apiVersion' else ''}must not be empty"
            yield Problem(f"metadata.ownerReferences.{key}", Kind.INVALID, "", sentence)


def _wrong_type(value: Any, expected: str, path: str) -> Iterator[Problem]:
    actual = type_name(value)
    if actual not in (expected, "null"):
        sentence = f"{path} must be of type {expected}: write it as one"
        yield Problem(path, Kind.TYPE, value, sentence)


def _invalid(value: str, check: Callable[[str], list[str]], path: str) -> Iterator[Problem]:
    for sentence in check(value):
        yield Problem(path, Kind.INVALID, value, sentence)
