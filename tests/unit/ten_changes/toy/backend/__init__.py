"""A toy backend, which serves checkpoints as they are on a server of its own kind."""

import json
from collections.abc import Mapping

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend, Warnings
from specdec.backends.rule import Rule
from specdec.triton.layout import RankPlan, Server


class Toy:
    """It builds nothing, and its server drafts by itself."""

    rules: tuple[Rule, ...] = ()
    warnings: tuple[Warnings, ...] = ()
    memory = None
    sized = None
    builder = None

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        del model
        return MethodDefinition()

    def parameters(self, version: str) -> tuple[str, ...]:
        del version
        return ()

    def servers(self, model: SpeculativeModel) -> RankPlan:
        del model
        return RankPlan((Server(0, {"target": ()}),))

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        checkpoint = facts.checkpoints["target"].path
        return {"toy.json": json.dumps({"checkpoint": checkpoint, "name": model.metadata.name})}


BACKEND: Backend = Toy()
