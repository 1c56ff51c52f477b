"""Engines of the Reference backend: converted on the CPU, layer by layer."""

from collections.abc import Mapping
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.backends import programs
from specdec.backends.building import DTYPES, engine_of_plan, limits, speculation
from specdec.backends.facts import Checkpoint, Engine, Facts
from specdec.backends.ranks import ranks
from specdec.desired.engine import Needs


class ReferenceBuilder:
    """The image of the servers is one of this release, so a build Job does not check it."""

    image_check = None

    @property
    def scripts(self) -> Mapping[str, str]:
        """The Python files of `images/build`."""
        return programs.payload("build")

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """An engine for each model."""
        return tuple(self.engine(model, facts.checkpoints[role], facts) for role in model.models)

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint; the key covers build plan, image and build program."""
        plan = _plan(model, checkpoint, facts.version)
        inputs = {
            "plan": plan,
            "image": facts.image,
            "scripts": programs.builder_digest(self.scripts),
            "gpuProduct": None,
        }
        return engine_of_plan(checkpoint.role, plan, inputs, checkpoint.bytes)

    def needs(self, model: SpeculativeModel, engine: Engine) -> Needs:
        """As many GPUs as serve the engine. The CPU converts layer by layer in little memory."""
        return Needs(len(ranks(model, one_process=True).devices[engine.role]))


def _plan(model: SpeculativeModel, checkpoint: Checkpoint, version: str) -> dict[str, Any]:
    spec = model.models[checkpoint.role]
    return {
        "backend": model.spec.runtime.backend.value,
        "role": checkpoint.role,
        "checkpoint": checkpoint.path,
        "dtype": DTYPES[spec.dtype],
        "limits": limits(model, checkpoint.role),
        # Null for methods without these sizes. Without this entry, the keys of engines that
        # are already on volumes would change.
        "lookahead": None,
        **speculation(model, checkpoint.role),
        "tensorParallel": spec.parallelism.tensor,
        "pipelineParallel": spec.parallelism.pipeline,
        "version": version,
    }
