"""What the API server does to a resource before it checks it: unknown fields, nulls, defaults."""

import copy
import difflib
from collections.abc import Iterator
from typing import Any

from specdec.tools.dry_run.admission.definition import Schema, child
from specdec.tools.dry_run.admission.problem import Kind, Problem

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def unknown_fields(body: dict[str, Any], schema: Schema) -> list[Problem]:
    """Every field that the schema lacks; `kubectl apply` asks the API server to refuse them."""
    fields = {key: value for key, value in body.items() if key not in _ROOT_FIELDS}
    return sorted(_unknown(fields, schema, ""), key=lambda problem: problem.field)


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    preserves = schema.get(_PRESERVE, False)
    if isinstance(value, list):
        items = schema.get("items", {})
        if preserves:
            # The extension holds for the items too.
            items = {**items, _PRESERVE: True}
        for index, item in enumerate(value):
            yield from _unknown(item, items, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        inner = child(schema, key)
        if inner is not None:
            yield from _unknown(item, inner, where)
        elif not preserves:
            yield Problem(where, Kind.UNKNOWN, hint=nearest(key, schema.get("properties", {})))


def nearest(name: str, known: Iterator[str] | dict[str, Any]) -> str:
    """A fix for a name that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"use one of {', '.join(names)}" if names else "remove it"


def decoded(value: Any, schema: Schema) -> Any:
    """A copy with defaults, and without nulls that the schema forbids; `value` is not changed.

    If a field has a default, the default replaces its null. Nulls of other fields are removed. In
    a list, a null stays unless the schema of the items has a default.
    """
    if isinstance(value, list):
        items = schema.get("items", {})
        return [
            decoded(items.get("default") if _is_unset(item, items) else item, items)
            for item in value
        ]
    if not isinstance(value, dict):
        return copy.deepcopy(value)
    given = {
        key: item
        for key, item in value.items()
        if (inner := child(schema, key)) is None or not _is_unset(item, inner)
    }
    defaults = {
        key: field["default"]
        for key, field in schema.get("properties", {}).items()
        if "default" in field and key not in given
    }
    return {
        key: decoded(item, child(schema, key) or {}) for key, item in (given | defaults).items()
    }


def _is_unset(value: Any, schema: Schema) -> bool:
    return value is None and not schema.get("nullable", False)
