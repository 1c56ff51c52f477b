"""Engines that `trtllm-build` makes, served by Triton's `tensorrtllm` backend."""

from collections.abc import Mapping

from specdec.api.model import SpeculativeModel
from specdec.backends import methods
from specdec.backends.facts import Facts
from specdec.backends.methods import MethodDefinition
from specdec.backends.protocol import Backend, EngineBuilder, Warnings
from specdec.backends.ranks import ranks
from specdec.backends.repository import repository
from specdec.backends.tensorrt import memory, rules
from specdec.backends.tensorrt.builder import TensorRTBuilder
from specdec.triton import options
from specdec.triton.layout import RankPlan


class TensorRT:
    """Engines have limits built in, so that the spec leaves none open."""

    warnings: tuple[Warnings, ...] = (rules.warnings,)
    rules = rules.RULES
    memory = staticmethod(memory.footprints)
    sized = None
    builder: EngineBuilder | None = TensorRTBuilder()

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method as backends with engines define it."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Parameters of the Triton models that run engines."""
        return options.free(version)

    def servers(self, model: SpeculativeModel) -> RankPlan:
        """Devices and ranks by topology and placement."""
        return ranks(model)

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The repository layout of the version, with the engines.

        A call has one row, as in NVIDIA's own BLS: calls of several rows are untried with
        draft tokens on this backend.
        """
        return repository(model, facts, self.servers(model), full_calls=False)


BACKEND: Backend = TensorRT()
