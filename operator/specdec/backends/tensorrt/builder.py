"""Engines that `trtllm-build` makes."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import ModelSpec, SpeculativeModel
from specdec.backends import programs
from specdec.backends.building import DTYPES, engine_of_plan, limits, speculation
from specdec.backends.facts import Checkpoint, Engine, Facts
from specdec.backends.ranks import ranks
from specdec.backends.tensorrt import image
from specdec.backends.tensorrt.needs import needs
from specdec.desired.engine import Needs

# Every build plan has these entries, which are null for methods without sizes. Leaving them out
# would change the keys of engines that are already on volumes.
_NO_SIZES = dict.fromkeys(("eagle", "medusa", "reDrafter", "lookahead"))


class TensorRTBuilder:
    """Engines are tied to a GPU product and to a server image; both are in their keys."""

    @property
    def scripts(self) -> Mapping[str, str]:
        """The Python files of `images/build`."""
        return programs.payload("build")

    def image_check(self, version: str) -> Mapping[str, Any]:
        """Templates and programs of the version's images."""
        return image.expectations(version)

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """An engine for each model, built or prebuilt."""
        return tuple(self.engine(model, facts.checkpoints[role], facts) for role in model.models)

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint.

        Its key covers build plan, image and build program, or the content of a prebuilt engine.
        """
        role = checkpoint.role
        plan = _plan(model, checkpoint, facts)
        if model.models[role].engine.prebuilt is None:
            scripts = programs.builder_digest(self.scripts)
            inputs = {"plan": plan, "image": facts.image, "scripts": scripts}
            read = [role, *(["heads"] if plan["heads"] else [])]
            reads = sum(facts.checkpoints[each].bytes for each in read)
            return engine_of_plan(role, plan, inputs, reads)
        digest = facts.checkpoints[f"{role}-engine"].digest
        key = names.digest({"prebuilt": digest})
        return Engine(role, key, {**plan, "key": key}, checkpoint=digest)

    def needs(self, model: SpeculativeModel, engine: Engine) -> Needs:
        """GPUs and memory, by the checkpoints that the build reads."""
        return needs(engine.plan, len(ranks(model).devices[engine.role]), engine.reads)


def _plan(model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> dict[str, Any]:
    """The plan that the build program reads; it has only what changes the engine's bytes."""
    role = checkpoint.role
    spec = model.models[role]
    headed = role == "target" and model.spec.speculation.heads is not None
    return {
        "backend": model.spec.runtime.backend.value,
        "role": role,
        "checkpoint": checkpoint.path,
        "heads": facts.checkpoints["heads"].path if headed else None,
        "version": facts.version,
        "gpuProduct": model.gpu(role).product,
        "architecture": checkpoint.facts.architecture,
        "dtype": DTYPES[spec.dtype],
        "quantization": spec.quantization.model_dump(by_alias=True),
        "tensorParallel": spec.parallelism.tensor,
        "pipelineParallel": spec.parallelism.pipeline,
        "limits": limits(model, role),
        **_NO_SIZES,
        **speculation(model, role),
        "engine": _options(model, spec),
        **_image_check(model),
        "examples": [folders.examples for folders in support(model.spec.runtime.backend).folders],
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
