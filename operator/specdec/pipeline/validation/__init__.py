"""The rules that the accept stage applies to a spec."""

from collections.abc import Iterator

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.rule import Rule, version
from specdec.pipeline.validation import definition, hardware, runtime, speculation

__all__ = ["first_problem", "version"]


def first_problem(model: SpeculativeModel, images: Images) -> Cause | None:
    """The first rule that the resource breaks, as a reason and a sentence; None without one."""
    return next((problem for rule in _rules(model) if (problem := rule(model, images))), None)


def _rules(model: SpeculativeModel) -> Iterator[Rule]:
    """The rules in order: a rule may rely on what the rules before it have checked.

    For example, a backend or method is looked up only after a rule has checked that this release
    serves it.
    """
    yield runtime.namespace
    yield from (runtime.served, runtime.known_version, definition.problem)
    yield from (runtime.method, runtime.image, speculation.blocks)
    yield from backends.method(model).rules
    yield from (runtime.dtypes, runtime.limits, runtime.sources, runtime.storage)
    yield hardware.products
    # A backend may have a sentence of its own for a parameter.
    yield from backends.of(model).rules
    yield from (
        runtime.parameters,
        hardware.claims,
        hardware.ranks,
    )
