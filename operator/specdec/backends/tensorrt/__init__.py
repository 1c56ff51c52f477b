"""Engines that `trtllm-build` makes, served by Triton's `tensorrtllm` backend."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import ModelSpec, SpeculativeModel
from specdec.backends import methods, programs
from specdec.backends.building import DTYPES, engine_of_plan, limits, speculation
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.footprint import Footprint
from specdec.backends.methods import MethodDefinition
from specdec.backends.protocol import Backend
from specdec.backends.ranks import ranks
from specdec.backends.repository import repository
from specdec.backends.tensorrt import image, memory, rules
from specdec.backends.tensorrt.needs import needs
from specdec.desired.engine import Needs
from specdec.triton import options
from specdec.triton.layout import RankPlan

_NAME = "TensorRT"
# Every build plan has these entries, which are null for methods without sizes. Leaving them out
# would change the keys of engines that are already on volumes.
_NO_SIZES = dict.fromkeys(("eagle", "medusa", "reDrafter", "lookahead"))


class TensorRT:
    """Engines are tied to a GPU product and to a server image; both are in their keys."""

    rules = rules.RULES

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method as backends with engines define it."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Parameters of the Triton models that run engines."""
        return options.free(version)

    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """A warning about speculation in pipeline stages."""
        return rules.warnings(model)

    def default_image(self, images: Images, version: str, frontend: str) -> str:
        """The public image that holds the version."""
        del images
        return support(_NAME).image(version, frontend)

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """Devices and ranks by topology and placement."""
        return ranks(model)

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """Estimates from the numbers of the checkpoints."""
        return memory.footprints(model, checkpoints)

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """Unchanged: limits are built into engines."""
        del checkpoints, gpu_mib
        return model

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """An engine for each model, built or prebuilt."""
        return tuple(self.engine(model, facts.checkpoints[role], facts) for role in model.models)

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint.

        Its key covers build plan, image and build program, or the content of a prebuilt engine.
        """
        role = checkpoint.role
        plan = self._plan(model, checkpoint, facts)
        if model.models[role].engine.prebuilt is None:
            scripts = programs.builder_digest(self.scripts())
            return engine_of_plan(
                role, plan, {"plan": plan, "image": facts.image, "scripts": scripts}
            )
        digest = facts.checkpoints[f"{role}-engine"].digest
        key = names.digest({"prebuilt": digest})
        return Engine(role, key, {**plan, "key": key}, checkpoint=digest)

    def needs(self, model: SpeculativeModel, engine: Engine, facts: Facts) -> Needs:
        """GPUs and memory, by the checkpoints that the build reads."""
        read = [engine.role, *(["heads"] if engine.plan.get("heads") else [])]
        weights = sum(facts.checkpoints[role].bytes for role in read)
        return needs(engine.plan, len(self.ranks(model).devices[engine.role]), weights)

    def scripts(self) -> Mapping[str, str]:
        """The Python files of `images/build`."""
        return programs.payload("build")

    def image(self, version: str) -> Mapping[str, Any]:
        """Templates and programs of the version's images."""
        return image.expectations(version)

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The repository layout of the version, with the engines.

        A call has one row, as in NVIDIA's own BLS: calls of several rows are untried with
        draft tokens on this backend.
        """
        return repository(model, facts, self.ranks(model), full_calls=False)

    def _plan(
        self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts
    ) -> dict[str, Any]:
        """The plan that the build program reads; it has only what changes the engine's bytes."""
        role = checkpoint.role
        spec = model.models[role]
        headed = role == "target" and model.spec.speculation.heads is not None
        return {
            "backend": _NAME,
            "role": role,
            "checkpoint": checkpoint.path,
            "heads": facts.checkpoints["heads"].path if headed else None,
            "version": facts.version,
            "gpuProduct": model.gpu(role).product,
            "architecture": checkpoint.facts.get("architecture"),
            "dtype": DTYPES[spec.dtype],
            "quantization": spec.quantization.model_dump(by_alias=True),
            "tensorParallel": spec.parallelism.tensor,
            "pipelineParallel": spec.parallelism.pipeline,
            "limits": limits(model, role),
            **_NO_SIZES,
            **speculation(model, role),
            "engine": _options(model, spec),
            **_image_check(model),
            "examples": [folders.examples for folders in support(_NAME).folders],
        }


def _image_check(model: SpeculativeModel) -> dict[str, str]:
    """The severity, if it is not the default.

    The default is left out, so that it changes no key.
    """
    severity = model.spec.checks.image
    return {} if severity == "Enforce" else {"imageCheck": severity}


def _options(model: SpeculativeModel, spec: ModelSpec) -> dict[str, Any]:
    return {
        **spec.engine.model_dump(by_alias=True, exclude={"prebuilt"}),
        # The executor of every release refuses requests for logits if the engine lacks this.
        "gatherGenerationLogits": model.spec.speculation.block.compares_logits,
    }


BACKEND: Backend = TensorRT()
