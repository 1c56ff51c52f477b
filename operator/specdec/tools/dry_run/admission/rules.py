"""Evaluate the CRD's rules (`x-kubernetes-validations`) on a decoded resource.

A rule whose expression has `oldSelf` compares with the resource before a change, so it does not
apply to a new resource, unless it has `optionalOldSelf`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from specdec.pipeline.validation import cel
from specdec.tools.dry_run.admission.definition import Schema, child
from specdec.tools.dry_run.admission.list_types import KEYS, LIST_TYPE
from specdec.tools.dry_run.admission.problem import NO_VALUE, WHOLE, Kind, Problem

RULES = "x-kubernetes-validations"
_OLD = "oldSelf"
_KINDS = {
    "FieldValueForbidden": Kind.FORBIDDEN,
    "FieldValueRequired": Kind.REQUIRED,
    "FieldValueDuplicate": Kind.DUPLICATE,
}
Rule = Mapping[str, Any]


def problems(value: Any, old: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """The rules that a value or the values inside it break.

    Args:
        value: the decoded value, which the schema accepts.
        old: the value before the change; None if there is none.
        schema: of the value.
        path: of the value.
    """
    if value is None:
        return
    for rule in schema.get(RULES, ()):
        yield from _broken(rule, value, old, path, schema)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            if (inner := child(schema, key)) is not None:
                where = f"{path}.{key}" if path else key
                yield from problems(item, before.get(key), inner, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            previous = _previous(item, old, schema)
            yield from problems(item, previous, schema.get("items", {}), f"{path}[{index}]")


@cache
def parsed(expression: str) -> cel.Node:
    """The syntax tree of a rule."""
    return cel.parse(expression)


@cache
def _reads_old(expression: str) -> bool:
    """Whether a rule reads the resource before a change."""
    return _OLD in cel.names(parsed(expression))


def _broken(rule: Rule, value: Any, old: Any, path: str, schema: Schema) -> Iterator[Problem]:
    node = parsed(rule["rule"])
    optional = rule.get("optionalOldSelf", False)
    if old is None and not optional and _reads_old(rule["rule"]):
        return
    before = cel.OptionalValue(old is not None, old) if optional else old
    scope = {"self": value, _OLD: before}
    try:
        if cel.evaluate(node, scope) is True:
            return
    except cel.EvaluationError as error:
        sentence = f"{error} evaluating rule: {rule.get('message', rule['rule'])}"
        yield Problem(path or WHOLE, Kind.INVALID, schema.get("type", ""), sentence)
        return
    # For a problem of the whole resource, the API server prints `<nil>` as the field.
    field = (path + rule.get("fieldPath", "")).removeprefix(".") or WHOLE
    kind = _KINDS.get(rule.get("reason", ""), Kind.INVALID)
    shown = NO_VALUE if isinstance(value, dict | list) else value
    yield Problem(field, kind, shown, _message(rule, scope))


def _message(rule: Rule, scope: Mapping[str, Any]) -> str:
    """The rule's message: the computed one if it is one line of text, else the fixed one."""
    default = rule.get("message") or f"failed rule: {rule['rule']}"
    if "messageExpression" not in rule:
        return str(default).strip()
    try:
        text = cel.evaluate(parsed(rule["messageExpression"]), scope)
    except cel.EvaluationError:
        return str(default).strip()
    is_line = isinstance(text, str) and text.strip() and "\n" not in text
    return str(text if is_line else default).strip()


def _previous(item: Any, old: Any, schema: Schema) -> Any:
    """The old item with the same keys, for a list of type map; None for any other list."""
    if schema.get(LIST_TYPE) != "map" or not isinstance(old, list):
        return None
    keys = schema[KEYS]
    same = (past for past in old if all(past.get(key) == item.get(key) for key in keys))
    return next(same, None)
