"""Checkpoints that TensorRT-LLM's LLM API serves as they are, in Triton or `trtllm-serve`."""

from collections.abc import Mapping
from functools import lru_cache

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.footprint import Footprint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend
from specdec.backends.pytorch import configuration, limits, memory, methods, rules
from specdec.desired.engine import Needs
from specdec.servers.trtllm_serve.serving import OPTIONS
from specdec.triton import llm_api
from specdec.triton.layout import RankPlan, Server
from specdec.triton.llm_api import LlmApiPlan

_NAME = "PyTorch"


class PyTorch:
    """This backend builds nothing. The server is one process; the LLM API starts further ones."""

    rules = rules.RULES

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method of the LLM API."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Arguments of the LLM API that no field of the spec sets."""
        del version
        return configuration.PARAMETERS

    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """Warnings about texts that requests share, and about adapters with speculation."""
        return rules.warnings(model)

    def default_image(self, images: Images, version: str, frontend: str) -> str:
        """The public image that holds the version and the program of the front end."""
        del images
        return support(_NAME).image(version, frontend)

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """The first GPUs of the pod; a draft has those of the target."""
        gpus = sum(len(ids) for ids in _instances(model))
        return RankPlan((Server(gpus, {"target": tuple(range(gpus))}),))

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """Estimates from the numbers of the checkpoints."""
        return memory.footprints(model, checkpoints)

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """Limits that follow from the checkpoint and the memory, where the spec has none."""
        return limits.sized(model, checkpoints, gpu_mib, self.ranks(model))

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """None: the LLM API serves checkpoints as they are."""
        del model, facts
        return ()

    def needs(self, model: SpeculativeModel, engine: Engine, facts: Facts) -> Needs:
        """None, because nothing is built."""
        del model, engine, facts
        return Needs(0)

    def scripts(self) -> Mapping[str, str]:
        """None, because nothing is built."""
        return {}

    def image(self, version: str) -> None:
        """None: no build Job runs in the image."""
        del version

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """One model with `model.yaml`, or the options of `trtllm-serve`."""
        if not rules.in_triton(model):
            return {OPTIONS: configuration.options(model, facts)}
        instances = _instances(model)
        plan = LlmApiPlan(
            configuration=configuration.text(model, facts),
            decoupled=model.spec.serving.streaming,
            gpu_device_ids=instances if len(instances) > 1 else (),
            max_queue_size=model.spec.serving.max_queue_size,
            lora=model.spec.runtime.parameters.get("enable_lora") == "true",
        )
        return _rendered(plan)


@lru_cache(maxsize=16)
def _rendered(plan: LlmApiPlan) -> Mapping[str, str]:
    return llm_api.files(plan)


def _instances(model: SpeculativeModel) -> tuple[tuple[int, ...], ...]:
    """The GPU ordinals of each instance; the first instance has the lowest ordinals."""
    split = model.spec.target.parallelism
    each = split.tensor * split.pipeline
    return tuple(
        tuple(range(first * each, (first + 1) * each))
        for first in range(model.spec.runtime.instances)
    )


BACKEND: Backend = PyTorch()
