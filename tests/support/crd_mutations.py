"""Random changes of good cases: wrong types, nulls, other lengths, unknown and repeated values."""

import random
from collections.abc import Iterator
from typing import Any

from support.crd_cases import Case, good

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 1.5, 1e30, [], {}, [None], [1, 1], ["a", "a"]),
    *("", "a", "a" * 300, "a\nb", "é\x01\u2028", "1Gi", "1.5.x", "/a/../b", "3000000", "-1"),
    *({"name": "a"}, {"name": None}, {"a": "b"}, [{"name": "a"}, {"name": "a"}], [{}, {"x": 1}]),
)
Schema = dict[str, Any]


def mutations(schema: Schema, count: int, seed: int) -> Iterator[Case]:
    """Yield cases that the server may accept or refuse; a seed always yields the same cases.

    Args:
        schema: schema of the whole resource.
        count: number of cases.
        seed: seed of the random choices.
    """
    choice = random.Random(seed)
    for number in range(count):
        body = choice.choice(good()).resource()
        for _ in range(choice.choice((1, 1, 2))):
            _change(body["spec"], schema["properties"]["spec"], choice)
        yield Case(f"{body['metadata']['name']}-{seed}-{number}", body)


def _change(place: dict[str, Any], schema: Schema, choice: random.Random) -> None:
    """Change one field at any depth, which the resource may lack."""
    fields = schema.get("properties", {})
    name = choice.choice([*fields, *place, "aField"])
    field, value = fields.get(name, {}), place.get(name)
    if isinstance(value, dict) and value and choice.random() < 0.7:
        _change(value, field, choice)
    elif isinstance(value, list) and value and choice.random() < 0.7:
        _change_item(value, field.get("items", {}), choice)
    elif "properties" in field and value is None and choice.random() < 0.7:
        place[name] = {}
        _change(place[name], field, choice)
    elif choice.random() < 0.15:
        place.pop(name, None)
    elif choice.random() < 0.6:
        place[name] = choice.choice(_fitting(field))
    else:
        place[name] = choice.choice([*_VALUES, *_beyond(field)])


def _change_item(items: list[Any], schema: Schema, choice: random.Random) -> None:
    index = choice.randrange(len(items))
    if isinstance(items[index], dict) and choice.random() < 0.7:
        _change(items[index], schema, choice)
    elif choice.random() < 0.5:
        items.append(items[index])
    else:
        items[index] = choice.choice(_VALUES)


def _fitting(field: Schema) -> list[Any]:
    """Return values that the schema of a field allows or nearly allows."""
    fits: dict[str, list[Any]] = {
        "boolean": [True, False],
        "integer": [field.get(key, 1) for key in ("minimum", "maximum", "default")],
        "string": field.get("enum", ["a", "1Gi", "1.2.3", "/a/b", "a/b"]),
        "array": [[]],
        "object": [{}],
    }
    return fits.get(field.get("type", ""), [1])


def _beyond(field: Schema) -> list[Any]:
    """Return values just beyond the bounds of a field."""
    beyond: list[Any] = [field["minimum"] - 1] if "minimum" in field else []
    beyond += [field["maximum"] + 1] if "maximum" in field else []
    return beyond + (["a" * (field["maxLength"] + 1)] if "maxLength" in field else [])
