"""The hand-written CustomResourceDefinition and the typed model agree."""

import copy
import re
import types
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from specdec.api import conditions, model
from specdec.api.reasons import ReadyReason
from support import crd_cases
from support.documents import definition
from unit import api_reference

ROOT = Path(__file__).parents[2]
CRD = definition()
VERSION: dict[str, Any] = CRD["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]
STATUS: dict[str, Any] = SCHEMA["properties"]["status"]
SCALARS = {int: "integer", bool: "boolean", str: "string"}
VERBS = "set|remove|leave|choose|lower|raise|put|write|list|correct|rename|use"
RESOLUTION = re.compile(rf": ({VERBS}) | remove one of them")
# The operator fills in these fields, and not the API server (ADR 0174).
LATE = re.compile(r"spec\.(target|speculation\.draftTarget\.draft)\.limits\.\w+")
OPEN = "x-kubernetes-preserve-unknown-fields"


def differences(kind: type[BaseModel], schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield every difference between the schema of an object and its typed model."""
    fields = {str(field.alias): field for field in kind.model_fields.values()}
    properties = schema.get("properties", {})
    for name in sorted(fields.keys() ^ properties.keys()):
        yield f"{path}.{name} is only in the {'model' if name in fields else 'schema'}"
    required = {name for name, field in fields.items() if field.is_required()}
    if required != set(schema.get("required", [])):
        yield f"{path} requires {sorted(required)} in the model, not {schema.get('required')}"
    for name in sorted(fields.keys() & properties.keys()):
        yield from default_differences(fields[name], properties[name], f"{path}.{name}")
        yield from type_differences(fields[name].annotation, properties[name], f"{path}.{name}")


def default_differences(field: FieldInfo, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield differences of defaults; an object's default must consist of its members' defaults."""
    if field.is_required():
        if "default" in schema:
            yield f"{path} is required and has a default"
        return
    ours = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(ours, BaseModel):
        if ours != type(ours)() or schema.get("default", {}) != {}:
            yield f"{path} has a default of its own"
    elif ours in (None, (), {}) or LATE.fullmatch(path):
        if "default" in schema:
            yield f"{path} has a default only in the schema"
    elif schema.get("default") != ours:
        yield f"{path} defaults to {ours} in the model, {schema.get('default')} in the schema"


def type_differences(annotation: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the differences between an annotation and a schema of any kind."""
    properties, inner = expected(annotation)
    for key, value in properties.items():
        if schema.get(key) != value:
            yield f"{path} has {key} {value} in the model, {schema.get(key)} in the schema"
    for key in schema.keys() & {"enum", OPEN} - properties.keys():
        yield f"{path} has {key} only in the schema"
    if inner is not None and properties["type"] == "object":
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from differences(inner, schema, path)
        else:
            yield from type_differences(inner, schema.get("additionalProperties", {}), f"{path}.*")
    elif inner is not None:
        yield from type_differences(inner, schema.get("items", {}), f"{path}[]")


def expected(annotation: Any) -> tuple[dict[str, Any], Any]:
    """Return the schema's keywords for an annotation, and the annotation of its contents."""
    origin, args = get_origin(annotation), get_args(annotation)
    if set(args) - {types.NoneType} == {int, str}:
        return {"x-kubernetes-int-or-string": True}, None
    if origin in (Union, types.UnionType):
        return expected(next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        return {"type": "string", "enum": list(args)}, None
    if origin is tuple:
        return {"type": "array"}, args[0]
    if origin is dict:
        if args[1] is Any:
            return {"type": "object", OPEN: True}, None
        return {"type": "object"}, args[1]
    if annotation in SCALARS:
        return {"type": SCALARS[annotation]}, None
    if issubclass(annotation, StrEnum):
        return {"type": "string", "enum": [str(member) for member in annotation]}, None
    return {"type": "object"}, annotation


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield this schema and every schema inside it, each with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def rules() -> list[tuple[str, dict[str, Any]]]:
    """Return every CEL rule with the path of the schema that contains it."""
    key = "x-kubernetes-validations"
    return [(path, rule) for path, node in nodes(SCHEMA, "") for rule in node.get(key, [])]


def test_spec_and_model_agree() -> None:
    assert list(differences(model.Spec, SPEC, "spec")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["properties"].pop("suspend"),
        lambda spec: spec["properties"].update(extra={"type": "string"}),
        lambda spec: spec["required"].remove("storage"),
        lambda spec: spec["properties"]["suspend"].update(default=True),
        lambda spec: spec["properties"]["suspend"].update(type="string"),
        lambda spec: spec["properties"]["speculation"]["properties"]["method"]["enum"].pop(),
        lambda spec: spec["properties"]["target"]["properties"]["dtype"].pop("enum"),
        lambda spec: spec["properties"]["build"]["properties"]["resources"].pop(OPEN),
        lambda spec: spec["properties"]["build"]["properties"]["nodeSelector"].pop(
            "additionalProperties"
        ),
        lambda spec: spec["properties"]["speculation"]["properties"]["draftTokens"].update(
            default=4
        ),
    ],
)
def test_a_difference_is_seen(change: Callable[[dict[str, Any]], object]) -> None:
    spec = copy.deepcopy(SPEC)
    change(spec)
    assert list(differences(model.Spec, spec, "spec"))


def test_names_are_those_of_the_model() -> None:
    names = CRD["spec"]["names"]
    assert CRD["metadata"]["name"] == f"{model.PLURAL}.{model.GROUP}"
    assert (CRD["spec"]["group"], VERSION["name"]) == (model.GROUP, model.VERSION)
    assert (names["kind"], names["plural"]) == (model.KIND, model.PLURAL)


def test_every_field_is_described() -> None:
    fields = [*nodes(SPEC, "spec"), *nodes(STATUS, "status")]
    bare = [path for path, node in fields if not path.endswith("[]") and "description" not in node]
    assert bare == []


def test_text_lists_and_maps_of_the_spec_are_bounded() -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "minimum"}
    for path, node in nodes(SPEC, "spec"):
        # A quantity is an integer or a string; the bound is that of a string.
        kind = "string" if node.get("x-kubernetes-int-or-string") else node["type"]
        bound = "maxProperties" if "additionalProperties" in node else bounds.get(kind)
        assert bound is None or bound in node or "enum" in node, f"{path} needs {bound}"


def test_every_rule_has_a_resolution() -> None:
    for path, rule in rules():
        message = rule["message"]
        assert RESOLUTION.search(message), f"{path}: {message}"
        assert "\n" not in message, path


def test_every_rule_is_broken_by_a_bad_resource() -> None:
    messages = [case.message for case in crd_cases.bad()]
    unbroken = [
        f"{path}: {rule['message']}"
        for path, rule in rules()
        if not any(part in rule["message"] for part in messages)
    ]
    assert unbroken == []


def test_good_resources_are_read_as_written() -> None:
    for case in crd_cases.good():
        body = case.resource()
        body["metadata"] |= {"namespace": "default", "uid": "0"}
        read = model.SpeculativeModel.parse(body)
        written = read.spec.model_dump(by_alias=True, mode="json", exclude_unset=True)
        assert written == body["spec"], case.name


def test_conditions_of_the_status_are_the_merged_ones() -> None:
    properties = STATUS["properties"]["conditions"]["items"]["properties"]
    condition = conditions.Condition(conditions.Type.READY, "True", ReadyReason.SERVING)
    assert conditions.merge([], [condition], 1, "2026-01-01T00:00:00Z")[0].keys() == (
        properties.keys()
    )


def test_reference_is_written_from_the_definition() -> None:
    again = "run python tests/unit/api_reference.py"
    assert api_reference.REFERENCE.read_text() == api_reference.render(CRD), again


def test_no_list_has_a_default() -> None:
    """A tool of GitOps would see such a default as a difference; `{}` gives fields their own."""
    defaults = [node.get("default") for _, node in nodes(SCHEMA, "")]
    compound = [default for default in defaults if isinstance(default, list | dict)]
    assert compound
    assert all(default == {} for default in compound)
