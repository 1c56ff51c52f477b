"""Check a decoded resource against the OpenAPI schema, in the API server's sentences."""

import json
from collections.abc import Iterator
from typing import Any

from specdec.pipeline.validation.cel.patterns import compiled
from specdec.tools.dry_run.admission.decoding import nearest
from specdec.tools.dry_run.admission.definition import Schema
from specdec.tools.dry_run.admission.problem import WHOLE, Kind, Problem, number, short, shown

_INT_OR_STRING = "x-kubernetes-int-or-string"
# Up to this number, a float represents every integer exactly.
_EXACT = 2**53 - 1
_INT32 = 2**31 - 1
_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


def problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """Every problem of a value and of the values inside it."""
    yield from _type(value, schema, path)
    if "enum" in schema and value not in schema["enum"]:
        yield _unsupported(value, schema["enum"], path)
    if schema.get("anyOf"):
        yield from _any_of(value, schema["anyOf"], path)
    if isinstance(value, str):
        yield from _text(value, schema, path)
    elif isinstance(value, list):
        yield from _list(value, schema, path)
    elif isinstance(value, dict):
        yield from _object(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)


def scale_problems(body: dict[str, Any], path: str) -> Iterator[Problem]:
    """Problems of the number that `kubectl scale` sets; the schema checks its type."""
    value: Any = body
    for key in path.removeprefix(".").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return
    field = path.removeprefix(".")
    if value < 0:
        yield Problem(field, Kind.INVALID, value, "should be a non-negative integer")
    elif value > _INT32:
        sentence = f"should be less than or equal to {_INT32}"
        yield Problem(field, Kind.INVALID, value, sentence)


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _type(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    allowed = ["integer", "string"] if schema.get(_INT_OR_STRING) else [schema.get("type", "")]
    actual = type_name(value)
    if allowed == [""] or actual in allowed or (value is None and schema.get("nullable")):
        return
    if actual == "integer" and "number" in allowed:
        return
    if actual == "number" and "integer" in allowed and _is_integral(value):
        return
    sentence = f'{path} in body must be of type {",".join(allowed)}: "{actual}"'
    fix = " or ".join(_TYPES[name] for name in allowed)
    yield Problem(
        path, Kind.TYPE, actual, sentence, f"write {fix} in place of {short(shown(value))}"
    )


def _is_integral(value: float) -> bool:
    return abs(value) <= _EXACT and float(value).is_integer()


def _unsupported(value: Any, allowed: list[Any], path: str) -> Problem:
    texts = [item if isinstance(item, str) else json.dumps(item) for item in allowed]
    listed = ", ".join(map(shown, texts))
    hint = nearest(value, dict.fromkeys(texts)) if isinstance(value, str) else ""
    hint = hint if hint.startswith("did you mean") else ""
    return Problem(path, Kind.UNSUPPORTED, value, f"supported values: {listed}", hint)


def _any_of(value: Any, schemas: list[Schema], path: str) -> Iterator[Problem]:
    failures = [list(problems(value, schema, path)) for schema in schemas]
    if all(failures):
        # The API server names no field here.
        sentence = f'"{path}" must validate at least one schema (anyOf)'
        yield Problem(WHOLE, Kind.INVALID, "", sentence)
        yield from failures[0]


def _text(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    """The first problem of a text: the API server reports no other one."""
    length = len(value)
    if length > schema.get("maxLength", length):
        sentence = f"may not be more than {schema['maxLength']} bytes"
        yield Problem(path, Kind.TOO_LONG, detail=sentence)
    elif length < schema.get("minLength", 0):
        sentence = f"{path} in body should be at least {schema['minLength']} chars long"
        yield Problem(path, Kind.INVALID, value, sentence)
    elif "pattern" in schema and compiled(schema["pattern"]).search(value) is None:
        sentence = f"{path} in body should match '{schema['pattern']}'"
        yield Problem(path, Kind.INVALID, value, sentence)


def _number(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    lowest, highest = schema.get("minimum", value), schema.get("maximum", value)
    if value < lowest:
        sentence = f"{path} in body should be greater than or equal to {_bound(lowest, value)}"
        yield Problem(path, Kind.INVALID, value, sentence)
    if value > highest:
        sentence = f"{path} in body should be less than or equal to {_bound(highest, value)}"
        yield Problem(path, Kind.INVALID, value, sentence)


def _bound(bound: float, value: Any) -> str:
    return number(float(bound)) if isinstance(value, float) else str(bound)


def _list(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    for index, item in enumerate(value):
        yield from problems(item, schema.get("items", {}), f"{path}[{index}]")
    count = len(value)
    if count < schema.get("minItems", 0):
        sentence = f"{path} in body should have at least {schema['minItems']} items"
        yield Problem(path, Kind.INVALID, count, sentence)
    if count > schema.get("maxItems", count):
        yield _too_many(count, schema["maxItems"], path)


def _object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Problem]:
    fields = schema.get("properties", {})
    values = schema.get("additionalProperties")
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key in fields:
            yield from problems(item, fields[key], where)
        elif isinstance(values, dict):
            yield from problems(item, values, where)
    for key in schema.get("required", []):
        if key not in value:
            yield Problem(f"{path}.{key}" if path else key, Kind.REQUIRED)
    if len(value) > schema.get("maxProperties", len(value)):
        yield _too_many(len(value), schema["maxProperties"], path)


def _too_many(count: int, most: int, path: str) -> Problem:
    return Problem(path, Kind.TOO_MANY, count, f"must have at most {most} items")
