"""The schema of the CRD, which the package carries without its descriptions.

`make generate` writes `definition.json` from `crds/speculativemodels.yaml`. To read JSON takes
1 ms, to read YAML 25 ms.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

FILE = "definition.json"
Schema = dict[str, Any]


@dataclass(frozen=True)
class Definition:
    """What the API server knows of a SpeculativeModel; callers must not change it.

    Attributes:
        schema: the OpenAPI schema of a whole resource.
        replicas: the path of the field that `kubectl scale` sets, such as `.spec.replicas`.
    """

    schema: Schema
    replicas: str


@cache
def definition() -> Definition:
    """The definition that the package carries."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return Definition(**json.loads(text))


def child(schema: Schema, key: str) -> Schema | None:
    """The schema of a field or of a map's value; None if the schema has neither."""
    if key in schema.get("properties", {}):
        field: Schema = schema["properties"][key]
        return field
    values = schema.get("additionalProperties")
    return values if isinstance(values, dict) else None


def carried(crd: dict[str, Any]) -> str:
    """The text of `definition.json` for a CustomResourceDefinition."""
    (version,) = crd["spec"]["versions"]
    kept = Definition(
        _without_descriptions(version["schema"]["openAPIV3Schema"]),
        version["subresources"]["scale"]["specReplicasPath"],
    )
    return json.dumps(vars(kept), separators=(",", ":"), ensure_ascii=False) + "\n"


def is_carried(crd: dict[str, Any]) -> bool:
    """Whether a CustomResourceDefinition of a cluster has the schema that the package carries."""
    versions = crd["spec"]["versions"]
    if len(versions) != 1 or "scale" not in versions[0].get("subresources", {}):
        return False
    # The API server orders the fields by their names.
    return bool(json.loads(carried(crd)) == vars(definition()))


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_descriptions(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A field may have the name description. Its value is then a schema and not a text.
    return {
        key: _without_descriptions(item)
        for key, item in value.items()
        if key != "description" or not isinstance(item, str)
    }
