"""Check that items of a list of type set, and keys of a list of type map, are unique."""

import json
from collections.abc import Iterator
from typing import Any

from specdec.tools.dry_run.admission.definition import Schema, child
from specdec.tools.dry_run.admission.problem import Kind, Problem

KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"


def problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """One problem for each repeated value, at the first item that repeats it."""
    if isinstance(value, list):
        yield from _list(value, schema, path)
        for index, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if (inner := child(schema, key)) is not None:
                yield from problems(item, inner, f"{path}.{key}" if path else key)


def _list(items: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    if schema.get(LIST_TYPE) == "set":
        yield from _duplicates(items, path)
    if schema.get(LIST_TYPE) != "map":
        return
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            sentence = "must be an object for an array of list-type map"
            yield Problem(f"{path}[{index}]", Kind.INVALID, item, sentence)
            return
    keys = [
        {key: item[key] for key in schema[KEYS] if key in item} if item else {} for item in items
    ]
    yield from _duplicates(keys, path)


def _duplicates(identities: list[Any], path: str) -> Iterator[Problem]:
    times: dict[str, int] = {}
    for index, identity in enumerate(identities):
        text = json.dumps(identity, sort_keys=True)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            yield Problem(f"{path}[{index}]", Kind.DUPLICATE, identity)
