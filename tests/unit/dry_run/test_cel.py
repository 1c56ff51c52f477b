"""The expressions of the CRD's rules: values, errors and unsupported expressions."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specdec.pipeline.validation.cel import (
    EvaluationError,
    OptionalValue,
    UnsupportedError,
    evaluate,
    parse,
)
from specdec.pipeline.validation.cel.patterns import compiled
from specdec.tools.dry_run.admission.definition import Schema, definition
from specdec.tools.dry_run.admission.rules import RULES

SELF = {
    "a": {"b": 3},
    "none": [],
    "list": [1, 2, 2],
    "text": "añb",
    "yes": True,
    "map": {"x": "1"},
}
VALUES: list[tuple[str, Any]] = [
    ("1 + 2 * 3 - 4 / 2", 5),
    ("-7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1", True),
    ("(1 + 2) * -3", -9),
    ("1.5 * 2.0", 3.0),
    ("'a' + \"b\" + r'\\n' + '\\n'", "ab\\n\n"),
    ("[1] + [2, 3]", [1, 2, 3]),
    ("1 == 1.0 && 1 < 1.5 && 'a' < 'b'", True),
    ("true == 1 || [true] == [1]", False),
    ("self.list == [1, 2, 2] && self.map != self.a", True),
    ("self.a.b == 3 ? 'yes' : self.missing", "yes"),
    ("false ? 1 : true ? 2 : 3", 2),
    ("self['a']['b'] + self.list[0]", 4),
    ("has(self.a.b) && !has(self.a.c)", True),
    ("2 in self.list && !(9 in self.list) && 'x' in self.map && !('y' in self.map)", True),
    ("size(self.text) == 3 && size(self.map) == 1 && self.list.size() == 3", True),
    ("self.text.contains('ñ') && self.text.startsWith('a')", True),
    ("'a1'.matches('^[a-z][0-9]$') && 'xa1y'.matches('a1') && !'a1\\n'.matches('1$')", True),
    ("'\\t'.matches('[[:cntrl:]]') && !'[]'.matches('[[:cntrl:]]')", True),
    ("self.list.all(x, x > 0) && !self.list.exists(x, x > 2)", True),
    ("self.list.exists_one(x, x == 1) && !self.list.exists_one(x, x == 2)", True),
    ("self.map.all(key, self.map[key] == '1')", True),
    ("self.none.all(x, false) && !self.none.exists(x, true)", True),
    # A side or item that decides the result counts, even if the other one has an error.
    ("self.missing || true", True),
    ("self.missing.more == 1 && false", False),
    ("self.list.exists(x, x / 0 == 1 || x == 2)", True),
    ("[1, 0].all(x, 1 / x > 1)", False),
    ("self.?a.?b.orValue(0) + self.?c.?d.orValue(4)", 7),
    ("self.?a.b.hasValue() && !self.?c.d.hasValue() && has(self.?a.b)", True),
    ("self.map[?'x'].orValue('') + self.?map[?'y'].orValue('2')", "12"),
    ("self.?list[?9].orValue(5)", 5),
    ("isQuantity('1Gi') && isQuantity('-.5e3') && !isQuantity('1 Gi') && !isQuantity('')", True),
    ("quantity('500m').asApproximateFloat()", 0.5),
    ("quantity('1Ki').isGreaterThan(quantity('1k'))", True),
]
ERRORS = [
    ("self.missing", "no such key: missing"),
    ("self.list[3]", "index out of bounds: 3"),
    ("1 / 0", "division by zero"),
    ("1 % 0", "modulus by zero"),
    ("9223372036854775807 + 1", "integer overflow"),
    ("self.text < 1", "no such overload"),
    ("self.list || false", "no such overload"),
    ("self.text.b", "no such overload"),
    ("self.text.?b", "no such overload"),
    ("self.list.exists_one(x, 1 / (x - 1) == 1)", "division by zero"),
    ("self.missing && true", "no such key: missing"),
    ("other", "no such attribute(s): other"),
    ("quantity('x')", "quantities must match the regular expression: x"),
]
UNSUPPORTED = [
    *("", "1 +", "a b", "f(1)", "self.filter(x, x)", "self.a(", "[1, , 2]", "'open", "has(1)"),
    *("has(self.?a)", "size()", "{'a': 1}", "1u", "0x1", "'\\x41'", "self.__namespace__", "a.'b'"),
]


@pytest.mark.parametrize(("expression", "value"), VALUES)
def test_value(expression: str, value: Any) -> None:
    assert evaluate(parse(expression), {"self": SELF}) == value


@pytest.mark.parametrize(("expression", "message"), ERRORS)
def test_error(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=f"^{re.escape(message)}$"):
        evaluate(parse(expression), {"self": SELF})


@pytest.mark.parametrize("expression", UNSUPPORTED)
def test_other_syntax_is_refused(expression: str) -> None:
    with pytest.raises(UnsupportedError):
        parse(expression)


def test_optional_old_value() -> None:
    rule = parse("oldSelf.hasValue() ? oldSelf.value == self.value : false")
    with pytest.raises(EvaluationError):
        evaluate(rule, {"self": {}, "oldSelf": None})
    kept = parse("oldSelf.orValue(self) == self")
    for old, same in ((OptionalValue(False), True), (OptionalValue(True, 2), False)):
        assert evaluate(kept, {"self": 1, "oldSelf": old}) is same


@pytest.mark.parametrize(
    "pattern", ["(?i)a", r"\p{L}", r"\Qa\E", "[[:word:]]", "a**"], ids=lambda p: str(p)
)
def test_other_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        compiled(pattern)


def rules(schema: Schema) -> Iterator[str]:
    yield from (rule["rule"] for rule in schema.get(RULES, ()))
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for part in inner:
        yield from rules(part)


def test_every_rule_of_the_definition_is_supported() -> None:
    every = set(rules(definition().schema))
    assert len(every) > 150
    for rule in every:
        parse(rule)
        for pattern in re.findall(r"matches\('([^']*)'\)", rule):
            compiled(pattern)
