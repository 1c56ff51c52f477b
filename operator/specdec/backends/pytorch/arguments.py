"""`spec.runtime.arguments`: arguments of the LLM API that no field sets, by name and type."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from specdec.api.cause import Cause
from specdec.api.matrix import at_least
from specdec.api.model import SpeculativeModel
from specdec.api.tables import table
from specdec.backends.facts import Images
from specdec.backends.pytorch import generations
from specdec.backends.rule import invalid, version

# The parameter of engines that serves requests with grammars.
GRAMMARS = "guided_decoding_backend"
_FIELD = "spec.runtime.arguments"
# Bytes of all names and values as JSON.
_LIMIT = 8192
_SHOWN = 60
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "text": ((str,), "a text"),
    "object": ((dict,), "an object"),
}


@dataclass(frozen=True)
class Argument:
    """What TensorRT-LLM takes for an argument; see the head of `arguments.yaml`."""

    since: str
    type: str = "text"
    values: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    optional: bool = False

    def takes(self, value: Any) -> bool:
        """Whether a value has the type, and is within the bounds."""
        if value is None:
            return self.optional
        types, _ = _TYPES[self.type]
        # A truth value is an integer in Python alone.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            return False
        if self.values:
            return value in self.values
        return not isinstance(value, int | float) or self._holds(value)

    def _holds(self, value: float) -> bool:
        low, high = self.least, self.most
        return (low is None or value >= low) and (high is None or value <= high)

    @property
    def expected(self) -> str:
        """The values to set, as the end of a sentence."""
        _, text = _TYPES[self.type]
        if self.values:
            text = f"one of {', '.join(self.values)}"
        if self.least is not None:
            text += f" from {self.least}"
        if self.most is not None:
            text += f" to {self.most}"
        return f"{text}, or null" if self.optional else text


@cache
def _names() -> Mapping[str, Argument]:
    return {
        name: Argument(**{**row, "values": tuple(row.get("values", ()))})
        for name, row in _table()["names"].items()
    }


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    rows: Mapping[str, Mapping[str, Any]] = table(__package__, "arguments.yaml")
    return rows


def known(release: str) -> tuple[str, ...]:
    """Names that a release takes, in alphabetical order."""
    return tuple(name for name, row in sorted(_names().items()) if at_least(release, row.since))


def checked(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release has each argument with its type, and neither a field nor the method sets it."""
    given, release = model.spec.runtime.arguments, version(model)
    for name, value in sorted(given.items()):
        message = _own(model, name) or _unknown(name, release) or _mistyped(name, value)
        if message:
            return invalid(message)
    if len(json.dumps(given).encode()) > _LIMIT:
        return invalid(f"{_FIELD} has more than {_LIMIT} bytes as JSON: remove some")
    return None


def grammars(model: SpeculativeModel, _: Images) -> Cause | None:
    """No front end passes a grammar on: the parameter of engines would have no effect."""
    given = model.spec.runtime.parameters.get(GRAMMARS)
    if given is None:
        return None
    why = _table()["refused"][GRAMMARS]
    return invalid(f"spec.runtime.parameters.{GRAMMARS} is {given[:_SHOWN]}, and {why}")


def _own(model: SpeculativeModel, name: str) -> str:
    """Why an argument is not for users to set; empty where it is."""
    if why := _table()["refused"].get(name):
        return f"{_FIELD} has {name}, and {why}"
    if field := _table()["fields"].get(name):
        return f"{_FIELD} has {name}, which spec.{field} sets: remove it from arguments"
    method = model.spec.speculation.method
    spelling = generations.of(version(model)).methods.get(method)
    if spelling is not None and name in spelling.arguments:
        return f"{_FIELD} has {name}, which method {method} needs as it is: remove it"
    return ""


def _unknown(name: str, release: str) -> str:
    names = known(release)
    if name in names:
        return ""
    return (
        f"{_FIELD} has {name[:100]}, which specdec does not pass on to TensorRT-LLM "
        f"{release}: use {', '.join(names)}"
    )


def _mistyped(name: str, value: Any) -> str:
    row = _names()[name]
    if row.takes(value):
        return ""
    return f"{_FIELD}.{name} is {json.dumps(value)[:_SHOWN]}: set it to {row.expected}"
