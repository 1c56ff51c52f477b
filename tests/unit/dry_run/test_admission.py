"""Admission without an API server, for every case of the control plane's tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from specdec.tools.dry_run.admission import Admission, admit, rules
from specdec.tools.dry_run.admission.decoding import decoded
from specdec.tools.dry_run.admission.definition import Schema, definition
from specdec.tools.dry_run.admission.problem import Kind, Problem, shown
from specdec.tools.dry_run.admission.structure import problems
from support import crd_cases
from support.carried_definition import CARRIED, text
from support.crd_cases import Case, good_resource

# The schema keywords that `admission` evaluates; its schema has no descriptions.
KEYWORDS = {
    *("type", "properties", "required", "items", "additionalProperties", "default", "nullable"),
    *("enum", "anyOf", "pattern", "minLength", "maxLength", "minimum", "maximum"),
    *("minItems", "maxItems", "maxProperties", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
    "x-kubernetes-preserve-unknown-fields",
}
# The API server ignores these formats.
IGNORED_FORMATS = {"int32", "int64"}
RULE_KEYS = {"rule", "message", "messageExpression", "fieldPath", "optionalOldSelf", "reason"}


def admitted(case: Case) -> Admission:
    old = admit(good_resource(case.after)).body if case.after else None
    return admit(case.resource(), old)


def test_package_carries_the_schema_of_the_definition() -> None:
    assert CARRIED.read_text("utf-8") == text(), "make generate writes it"


def parts(schema: Schema) -> Iterator[Schema]:
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for part in inner:
        yield from parts(part)


def test_every_keyword_of_the_schema_is_evaluated() -> None:
    known = definition().schema
    for part in parts({**known, "properties": {"spec": known["properties"]["spec"]}}):
        assert part.keys() - {"format"} <= KEYWORDS
        assert part.get("format", "int32") in IGNORED_FORMATS
        for rule in part.get(rules.RULES, ()):
            assert rule.keys() <= RULE_KEYS
            assert "[" not in rule.get("fieldPath", "")


def test_good_resources_are_accepted() -> None:
    verdicts = {case.name: admitted(case).problems for case in crd_cases.good()}
    assert {name: refusal for name, refusal in verdicts.items() if refusal} == {}


@pytest.mark.parametrize("case", crd_cases.bad(), ids=lambda case: case.name)
def test_bad_resource_is_refused_by_the_intended_rule(case: Case) -> None:
    refusals = admitted(case).problems
    assert refusals
    assert all(case.message in problem.message for problem in refusals), refusals
    if "unknown field" not in case.message:
        assert {problem.field for problem in refusals} == {case.field}


def test_rule_on_a_change_does_not_apply_to_a_new_resource() -> None:
    changes = [case for case in crd_cases.bad() if case.after]
    assert changes
    for case in changes:
        assert admit(case.resource()).problems == ()


def test_resource_is_not_changed() -> None:
    body = good_resource("none-minimal")
    stored = admit(body)
    assert body == good_resource("none-minimal")
    assert stored.body["spec"]["runtime"]["instances"] == 1


def test_status_is_dropped_and_its_unknown_fields_are_refused() -> None:
    body = good_resource("none-minimal")
    assert "status" not in admit({**body, "status": {"phase": 7}}).body
    (problem,) = admit({**body, "status": {"phases": ""}}).problems
    assert str(problem).endswith('unknown field "status.phases": did you mean phase?')


METADATA: list[tuple[str, Any, str]] = [
    ("name", "a.b", "metadata.name must start with a letter"),
    ("name", "-", 'metadata.name: Invalid value: "-": a lowercase RFC 1123 subdomain'),
    ("name", None, "metadata.name: Required value: name or generateName is required"),
    ("name", 5, "metadata.name: Invalid value: 5: metadata.name must be of type string"),
    ("namespace", "a.b", 'metadata.namespace: Invalid value: "a.b": a lowercase RFC 1123 label'),
    ("labels", {"a b": ""}, 'metadata.labels: Invalid value: "a b": name part must consist'),
    ("labels", {"a/b/c": ""}, 'metadata.labels: Invalid value: "a/b/c": a qualified name must'),
    ("labels", {"/b": ""}, "prefix part must be non-empty"),
    ("labels", {"a": "b" * 64}, "must be no more than 63 characters"),
    ("labels", {"a": 1}, "metadata.labels.a must be of type string"),
    ("annotations", {"a/": "b"}, "name part must be non-empty"),
    ("annotations", {"a": "b" * 300000}, "Too long: may not be more than 262144 bytes"),
    ("finalizers", ["a b"], 'metadata.finalizers: Invalid value: "a b"'),
    ("ownerReferences", [{"name": "a", "uid": "b", "kind": "c"}], "version must not be empty"),
    ("creationTimestamp", "today", "write a time, as in 2026-01-02T03:04:05Z"),
    ("label", {}, 'unknown field "metadata.label": did you mean labels?'),
]


@pytest.mark.parametrize(("key", "value", "sentence"), METADATA)
def test_metadata_is_checked(key: str, value: Any, sentence: str) -> None:
    body = good_resource("none-minimal")
    body["metadata"][key] = value
    assert any(sentence in str(problem) for problem in admit(body).problems)


def test_metadata_of_a_stored_resource_is_accepted() -> None:
    body = good_resource("none-minimal")
    body["metadata"] |= {
        "uid": "a",
        "generation": 3,
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": None,
        "annotations": {"Example.com/A": "b", "c": ""},
        "managedFields": [{}],
    }
    assert admit(body).problems == ()


def test_items_of_a_list_that_preserves_fields_are_preserved() -> None:
    body = good_resource("none-minimal")
    body["spec"]["serving"] = {"affinity": [{"name": "a"}]}
    (problem,) = admit(body).problems
    assert problem.message.endswith(
        'spec.serving.affinity in body must be of type object: "array"'
    )


def test_nulls_and_defaults() -> None:
    schema = {
        "properties": {
            "a": {"default": {}, "properties": {"b": {"default": 1}}},
            "c": {},
            "d": {"nullable": True},
        },
        "additionalProperties": {"default": 2},
    }
    value = {"a": None, "c": None, "d": None, "e": 3}
    assert decoded(value, schema) == {"a": {"b": 1}, "d": None, "e": 3}
    items = {"items": {"default": 4}}
    assert decoded([None, 5], items) == [4, 5]
    assert decoded([None], {"items": {}}) == [None]


def test_problem_of_int_or_string() -> None:
    schema = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^[0-9]+$",
    }
    assert [*problems(1, schema, "a"), *problems("1", schema, "a")] == []
    fields = {(problem.field, problem.kind) for problem in problems(True, schema, "a")}
    assert fields == {("a", Kind.TYPE), ("<nil>", Kind.INVALID)}
    (problem,) = problems("x", schema, "a")
    assert str(problem) == "a: Invalid value: \"x\": a in body should match '^[0-9]+$'"


def rule_problems(value: Any, old: Any, **rule: Any) -> list[Problem]:
    schema = {"type": "object", rules.RULES: [{"message": "no", **rule}]}
    return list(rules.problems(value, old, schema, "a"))


def test_optional_old_value_makes_a_rule_apply_to_a_new_resource() -> None:
    rule = {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": True}
    assert rule_problems(1, None, **rule) == rule_problems(2, 1, **rule) == []
    assert len(rule_problems(2, None, **rule)) == 1


def test_message_of_a_rule_may_be_computed() -> None:
    (problem,) = rule_problems({"n": "x"}, None, rule="false", messageExpression="'no ' + self.n")
    assert problem.message == "Invalid value: no x"
    (problem,) = rule_problems({"n": 1}, None, rule="false", messageExpression="'no ' + self.n")
    assert problem.message == "Invalid value: no"


def test_rule_without_a_value_and_with_a_reason() -> None:
    (problem,) = rule_problems({}, None, rule="self.b == 1")
    assert problem.message == 'Invalid value: "object": no such key: b evaluating rule: no'
    (problem,) = rule_problems(1, None, rule="false", reason="FieldValueForbidden")
    assert problem.message == "Forbidden: no"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a"\\\n\x01é\u2028\U000e0001', '"a\\"\\\\\\n\\x01é\\u2028\\U000e0001"'),
        (1.5, "1.5"),
        (1e30, "1e+30"),
        (-16777216.0, "-1.6777216e+07"),
        (0.00001, "1e-05"),
        (True, "true"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
    ],
)
def test_value_is_shown_as_the_api_server_does(value: Any, text: str) -> None:
    assert shown(value) == text


def test_problem_is_one_short_line_for_people() -> None:
    problem = Problem("a", Kind.INVALID, "x" * 10_000, "no")
    assert len(str(problem)) < 300
    assert len(problem.message) > 10_000
    field = "b\n\x1b[2J" + "y" * 5_000
    unknown = str(Problem(field, Kind.UNKNOWN))
    assert r'unknown field "b\n\x1b[2Jyyy' in unknown
    assert len(unknown) < 300
    line = str(Problem(field, Kind.INVALID, 1, f"{field} in body should be 2"))
    assert line.isprintable()
    assert len(line) < 600
