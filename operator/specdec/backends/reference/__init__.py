"""The CPU backend, for trying, testing and teaching."""

from collections.abc import Mapping
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.backends import methods, programs
from specdec.backends.building import DTYPES, engine_of_plan, limits, speculation
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.footprint import Footprint
from specdec.backends.methods import MethodDefinition
from specdec.backends.protocol import Backend
from specdec.backends.ranks import ranks
from specdec.backends.repository import repository
from specdec.backends.rule import Rule
from specdec.desired.engine import Needs
from specdec.triton import options
from specdec.triton.layout import RankPlan


class Reference:
    """It needs no GPU. If the spec lists GPU ordinals, it requests these GPUs, for tests."""

    rules: tuple[Rule, ...] = ()

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method as backends with engines define it."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Parameters of the Triton models that run engines."""
        return options.free(version)

    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """No warnings."""
        del model
        return ()

    def default_image(self, images: Images, version: str, frontend: str) -> str:
        """The reference image of the release, which serves every version."""
        del version, frontend
        return images.reference

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """One process on exactly the ordinals of the spec."""
        return ranks(model, one_process=True)

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """Nothing: it serves from the memory of the host."""
        del model, checkpoints
        return {}

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """Unchanged: limits are built into engines."""
        del checkpoints, gpu_mib
        return model

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """An engine for each model."""
        return tuple(self.engine(model, facts.checkpoints[role], facts) for role in model.models)

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint; the key covers build plan, image and build program."""
        plan = self._plan(model, checkpoint, facts.version)
        inputs = {
            "plan": plan,
            "image": facts.image,
            "scripts": programs.builder_digest(self.scripts()),
            "gpuProduct": None,
        }
        return engine_of_plan(checkpoint.role, plan, inputs)

    def needs(self, model: SpeculativeModel, engine: Engine, facts: Facts) -> Needs:
        """As many GPUs as serve the engine. The CPU converts layer by layer in little memory."""
        del facts
        return Needs(len(self.ranks(model).devices[engine.role]))

    def scripts(self) -> Mapping[str, str]:
        """The Python files of `images/build`."""
        return programs.payload("build")

    def image(self, version: str) -> None:
        """Nothing: the image is built from this tree."""
        del version

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The repository layout of the version, with the engines."""
        return repository(model, facts, self.ranks(model), full_calls=True)

    def _plan(
        self, model: SpeculativeModel, checkpoint: Checkpoint, version: str
    ) -> dict[str, Any]:
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


BACKEND: Backend = Reference()
