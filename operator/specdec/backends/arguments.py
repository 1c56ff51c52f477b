"""`spec.runtime.arguments`: arguments of an engine that no field sets, by name and type.

`arguments.yaml` of a backend has the names. Its head explains them.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.api.tables import table
from specdec.api.versions import at_least
from specdec.backends.rule import version

FIELD = "spec.runtime.arguments"
# Bytes of all names and values as JSON.
_LIMIT = 8192
_SHOWN = 60
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "text": ((str,), "a text"),
    "list": ((list,), "a list"),
    "object": ((dict,), "an object"),
}


@dataclass(frozen=True)
class Argument:
    """What an engine takes for an argument; see the head of `arguments.yaml`."""

    since: str
    before: str = ""
    type: str = "text"
    values: tuple[str | int, ...] = ()
    least: int | None = None
    most: int | None = None
    optional: bool = False

    def has(self, release: str) -> bool:
        """Whether a release takes the argument in this form."""
        ended = bool(self.before) and at_least(release, self.before)
        return at_least(release, self.since) and not ended

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
            text = f"one of {', '.join(map(str, self.values))}"
        if self.least is not None:
            text += f" from {self.least}"
        if self.most is not None:
            text += f" to {self.most}"
        return f"{text}, or null" if self.optional else text


@dataclass(frozen=True)
class Arguments:
    """The arguments of an engine.

    Attributes:
        engine: the name of the engine, for sentences.
        names: what users may set, each with its forms in different releases.
        fields: names that a field of the spec sets, with that field.
        refused: names that users must not set, each with the end of a sentence.
    """

    engine: str
    names: Mapping[str, tuple[Argument, ...]]
    fields: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def known(self, release: str) -> tuple[str, ...]:
        """Names that a release takes, in alphabetical order."""
        return tuple(sorted(name for name in self.names if self._form(name, release)))

    def problem(self, model: SpeculativeModel, needed: Collection[str] = ()) -> str:
        """Why the arguments of a resource are invalid, as one sentence; empty if they are valid.

        Args:
            model: the resource.
            needed: arguments that the resource's method sets, beside those of fields.
        """
        given, release = model.spec.runtime.arguments, version(model)
        for name, value in sorted(given.items()):
            message = (
                self._own(name)
                or _of_method(name, model, needed)
                or self._unknown(name, release)
                or self._mistyped(name, value, release)
            )
            if message:
                return message
        if len(json.dumps(given).encode()) > _LIMIT:
            return f"{FIELD} has more than {_LIMIT} bytes as JSON: remove some"
        return ""

    def _own(self, name: str) -> str:
        """Why an argument is not for users to set; empty where it is."""
        if why := self.refused.get(name):
            return f"{FIELD} has {name}, and {why}"
        if sets := self.fields.get(name):
            return f"{FIELD} has {name}, which spec.{sets} sets: remove it from arguments"
        return ""

    def _unknown(self, name: str, release: str) -> str:
        names = self.known(release)
        if name in names:
            return ""
        return (
            f"{FIELD} has {name[:100]}, which specdec does not pass on to {self.engine} "
            f"{release}: use {', '.join(names)}"
        )

    def _form(self, name: str, release: str) -> Argument | None:
        return next((row for row in self.names[name] if row.has(release)), None)

    def _mistyped(self, name: str, value: Any, release: str) -> str:
        row = self._form(name, release)
        if row is None or row.takes(value):
            return ""
        return f"{FIELD}.{name} is {json.dumps(value)[:_SHOWN]}: set it to {row.expected}"


@cache
def arguments(package: str, engine: str) -> Arguments:
    """The table of a backend's package; `engine` is the engine's name."""
    rows: Mapping[str, Mapping[str, Any]] = table(package, "arguments.yaml")
    names = {name: tuple(_forms(each)) for name, each in rows["names"].items()}
    return Arguments(engine, names, rows["fields"], rows["refused"])


def _forms(rows: Mapping[str, Any] | list[Mapping[str, Any]]) -> Iterator[Argument]:
    """The forms of an argument; one that has the same form in all releases needs no list."""
    for row in rows if isinstance(rows, list) else [rows]:
        yield Argument(**{**row, "values": tuple(row.get("values", ()))})


def _of_method(name: str, model: SpeculativeModel, needed: Collection[str]) -> str:
    if name not in needed:
        return ""
    method = model.spec.speculation.method
    return f"{FIELD} has {name}, which method {method} needs as it is: remove it"
