"""Validate a status as the API server does, and report the refused fields by path."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from support.documents import definition

_ROOT = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
STATUS: dict[str, Any] = _ROOT["properties"]["status"]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}
BITS = {"int32": 31, "int64": 63}


def refusals(value: Any, schema: dict[str, Any] = STATUS, path: str = "status") -> Iterator[str]:
    """Yield a message for every field that violates the schema."""
    kind: str = schema["type"]
    inner: Any = value
    wrong = isinstance(value, bool) and kind == "integer"
    if not isinstance(value, TYPES[kind]) or wrong:
        yield f"{path} is {value!r:.60}, not of type {kind}"
    elif kind == "object":
        yield from _members(inner, schema, path)
    elif kind == "array":
        for number, item in enumerate(inner):
            yield from refusals(item, schema["items"], f"{path}[{number}]")
    elif kind == "integer":
        most = 2 ** BITS[schema["format"]]
        if not -most <= value < most:
            yield f"{path} is {value}, beyond {schema['format']}"
    elif kind == "string":
        yield from _text(inner, schema, path)


def _members(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path} lacks {name}"
    for name, inner in value.items():
        yield from _text(name, {}, f"{path}: the key {name!r:.40}")
        if name in known:
            yield from refusals(inner, known[name], f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from refusals(inner, schema["additionalProperties"], f"{path}.{name}")
        elif "x-kubernetes-preserve-unknown-fields" not in schema:
            yield f"{path} has no field {name!r:.40}"


def _text(value: str, schema: dict[str, Any], path: str) -> Iterator[str]:
    if len(value) > schema.get("maxLength", 32768):
        yield f"{path} is longer than {schema.get('maxLength')}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is {value!r:.60}, none of {schema['enum']}"
    try:
        value.encode()
    except UnicodeEncodeError:
        yield f"{path} cannot be encoded"
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield f"{path} is {value!r:.60}, no time"
