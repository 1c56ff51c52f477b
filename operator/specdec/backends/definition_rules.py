"""Rules of the definition (the CRD) on backends and methods: tables, and the CEL they make.

`features.yaml` lists what not every backend has, and `rules.yaml` of a backend what it has, with
rules of its own. `methods/rules.yaml` has rules of methods. The methods and front ends of a
backend are those of `api/support.yaml`. `make generate` writes the rules into the CRD. The accept
stage evaluates them too, because a cluster may have stored a resource under an older definition.
So no rule is repeated in Python.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from specdec.api.matrix import matrix, support
from specdec.api.reasons import AcceptedReason
from specdec.api.speculation import Method
from specdec.api.tables import table

_FILE = "rules.yaml"
_SET = "set spec.runtime.backend to"


@dataclass(frozen=True)
class DefinitionRule:
    """A rule on `spec`.

    Attributes:
        field: the path below `spec` that a refusal names.
        rule: CEL with `self` for `spec`; true for a valid resource.
        message: one sentence with the resolution.
        reason: that of the condition `Accepted`.
    """

    field: str
    rule: str
    message: str
    reason: AcceptedReason = AcceptedReason.INVALID_SPEC


@dataclass(frozen=True)
class _Feature:
    """A row of `features.yaml`, which describes its fields."""

    field: str
    unused: str
    has: str = ""
    can: str = ""
    fix: str = ""
    message: str = ""

    def sentence(self, able: list[str]) -> str:
        """The general sentence for a backend that lacks the feature."""
        if self.message:
            return self.message
        verb = f"can {self.can}" if self.can else f"{'have' if able[1:] else 'has'} {self.has}"
        return f"only {_named(able)} {verb}: {self.fix.format(backends=' or '.join(able))}"


@dataclass(frozen=True)
class _Table:
    """The `rules.yaml` of a backend: features that it has, sentences for others, own rules."""

    has: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Mapping[str, str], ...] = ()


def rules() -> tuple[DefinitionRule, ...]:
    """All rules that depend on the backend, in the order of the definition."""
    return (*_methods(), *_frontends(), *_own(), *_features())


@cache
def tables() -> Mapping[str, _Table]:
    """The tables by backend; a backend without a file has no feature."""
    served = [str(name) for name, row in matrix().items() if row.served]
    packages = {name: f"{__package__}.{name.lower()}" for name in served}
    return {
        name: _Table(**table(package, _FILE))
        if files(package).joinpath(_FILE).is_file()
        else _Table()
        for name, package in packages.items()
    }


@cache
def features() -> Mapping[str, _Feature]:
    """What not every backend has, by name."""
    return {name: _Feature(**row) for name, row in table(__package__, "features.yaml").items()}


def has(backend: str, feature: str) -> bool:
    """Whether a backend has a feature of `features.yaml`."""
    return feature in tables()[backend].has


def _methods() -> Iterator[DefinitionRule]:
    """A backend drafts only by its methods; its row may advise what to use instead."""
    advised: dict[tuple[str, str], list[str]] = {}
    lacking: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for method in map(str, Method):
        able = tuple(str(name) for name, row in matrix().items() if method in row.methods)
        exempt = tuple(str(name) for name, row in matrix().items() if method in row.instead)
        lacking.setdefault((able, exempt), []).append(method)
        for name in exempt:
            advised.setdefault((name, support(name).instead[method]), []).append(method)
    for (name, advice), methods in advised.items():
        sentence = f"this method needs an engine, and backend {name} builds none: choose {advice}"
        yield _method(f"self.runtime.backend != '{name}'", methods, sentence)
    for (able, exempt), methods in lacking.items():
        if {*able, *exempt} != {*matrix()}:
            verb = "draft" if able[1:] else "drafts"
            sentence = (
                f"only {_named(able)} {verb} by this method: {_SET} {' or '.join(able)}, or "
                "choose another method"
            )
            yield _method(_any_of("self.runtime.backend", able + exempt), methods, sentence)


def _method(guard: str, methods: list[str], sentence: str) -> DefinitionRule:
    used = _any_of("self.speculation.method", methods)
    reason = AcceptedReason.UNSUPPORTED_METHOD
    return DefinitionRule("speculation.method", f"{guard} || !({used})", sentence, reason)


def _frontends() -> Iterator[DefinitionRule]:
    """A backend has only the front ends of its row."""
    for frontend in dict.fromkeys(name for row in matrix().values() for name in row.fronts):
        able = [str(name) for name, row in matrix().items() if frontend in row.fronts]
        if len(able) < len(matrix()):
            verb = "have" if able[1:] else "has"
            guard = _any_of("self.runtime.backend", able)
            yield DefinitionRule(
                "runtime.frontend",
                f"{guard} || self.runtime.frontend != '{frontend}'",
                f"only {_named(able)} {verb} front end {frontend}: remove runtime.frontend, or "
                f"{_SET} {' or '.join(able)}",
            )


def _features() -> Iterator[DefinitionRule]:
    """For each feature the sentences of backends that lack it, and then the general one."""
    for name, feature in features().items():
        own = {backend: row.lacks[name] for backend, row in tables().items() if name in row.lacks}
        for backend, sentence in own.items():
            rule = f"self.runtime.backend != '{backend}' || {feature.unused}"
            yield DefinitionRule(feature.field, rule, sentence)
        able = [backend for backend, row in tables().items() if name in row.has]
        if {*able, *own} != {*matrix()}:
            guard = _any_of("self.runtime.backend", [*able, *own])
            rule = f"{guard} || {feature.unused}"
            yield DefinitionRule(feature.field, rule, feature.sentence(able))


def _own() -> Iterator[DefinitionRule]:
    """The rules of methods, and those that only one backend has."""
    for row in table(f"{__package__}.methods", _FILE):
        yield DefinitionRule(**row)
    for backend, own in tables().items():
        for row in own.rules:
            rule = f"self.runtime.backend != '{backend}' || {row['rule']}"
            yield DefinitionRule(row["field"], rule, row["message"])


def _any_of(value: str, names: Iterable[str]) -> str:
    """CEL: whether a value is one of some names."""
    quoted = [f"'{name}'" for name in names]
    return f"{value} in [{', '.join(quoted)}]" if quoted[1:] else f"{value} == {quoted[0]}"


def _named(backends: Iterable[str]) -> str:
    """Backends as the start of a sentence."""
    *first, last = backends
    return f"backends {', '.join(first)} and {last}" if first else f"backend {last}"
