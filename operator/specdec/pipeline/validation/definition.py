"""The definition's rules that depend on the backend, evaluated as the API server does."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from specdec.api.cause import Cause
from specdec.api.model import Limits, Spec, SpeculativeModel
from specdec.api.networking import OpenAILimits
from specdec.api.serving import Serving
from specdec.api.value import Value
from specdec.backends import definition_rules
from specdec.backends.definition_rules import DefinitionRule
from specdec.backends.facts import Images
from specdec.pipeline.validation import cel

# The number of specs whose verdict is remembered, some kilobytes each.
SPECS = 1000
# The objects that have a default in the definition.
_OBJECTS = (Serving, OpenAILimits)


def problem(model: SpeculativeModel, _: Images) -> Cause | None:
    """The first rule that the spec breaks: a cluster may have stored it under an older definition.

    A rule that cannot be evaluated counts as broken, as on the API server.
    """
    # A spec is reconciled many times. A value that was set differs from an equal default.
    return _problem(_Cached(model.spec.model_dump_json(exclude_unset=True), model.spec))


@dataclass(frozen=True)
class _Cached:
    """A spec, which is equal to another one with the same text."""

    text: str
    spec: Spec = field(compare=False)


@lru_cache(maxsize=SPECS)
def _problem(cached: _Cached) -> Cause | None:
    scope = {"self": stored(cached.spec)}
    for rule, expression in _parsed():
        if not _holds(expression, scope):
            return Cause(rule.reason, f"spec.{rule.field}: {rule.message}")
    return None


def stored(value: Any) -> Any:
    """A part of the spec as the API server stores it: what was set, and defaults of scalars."""
    if isinstance(value, Value):
        return {
            str(field.alias): stored(own)
            for name, field in type(value).model_fields.items()
            if (own := getattr(value, name)) is not None
            and (name in value.model_fields_set or _has_default(value, own))
        }
    if isinstance(value, tuple):
        return [stored(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def _has_default(parent: Value, value: Any) -> bool:
    """Whether the API server sets a value where nothing is set: scalars, and two objects."""
    if isinstance(parent, Limits):
        # The operator fills in open limits, and not the API server.
        return False
    return isinstance(value, _OBJECTS) or not isinstance(value, Value | tuple | dict)


@cache
def _parsed() -> tuple[tuple[DefinitionRule, cel.Node], ...]:
    return tuple((rule, cel.parse(rule.rule)) for rule in definition_rules.rules())


def _holds(expression: cel.Node, scope: dict[str, Any]) -> bool:
    try:
        return cel.evaluate(expression, scope) is True
    except cel.EvaluationError:
        return False
