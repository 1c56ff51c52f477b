"""The CPU backend, for trying, testing and teaching."""

from collections.abc import Mapping

from specdec.api.model import SpeculativeModel
from specdec.backends import methods
from specdec.backends.facts import Facts
from specdec.backends.methods import MethodDefinition
from specdec.backends.protocol import Backend, EngineBuilder, Warnings
from specdec.backends.ranks import ranks
from specdec.backends.reference.builder import ReferenceBuilder
from specdec.backends.repository import repository
from specdec.backends.rule import Rule
from specdec.triton import options
from specdec.triton.layout import RankPlan


class Reference:
    """It needs no GPU. If the spec lists GPU ordinals, it requests these GPUs, for tests."""

    rules: tuple[Rule, ...] = ()
    warnings: tuple[Warnings, ...] = ()
    # It serves from the memory of the host, and limits are built into engines.
    memory = None
    sized = None
    builder: EngineBuilder | None = ReferenceBuilder()

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method as backends with engines define it."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Parameters of the Triton models that run engines."""
        return options.free(version)

    def servers(self, model: SpeculativeModel) -> RankPlan:
        """One process on exactly the ordinals of the spec."""
        return ranks(model, one_process=True)

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The repository layout of the version, with the engines."""
        return repository(model, facts, self.servers(model), full_calls=True)


BACKEND: Backend = Reference()
