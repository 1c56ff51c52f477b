"""Checkpoints that TensorRT-LLM's LLM API serves as they are, in Triton or `trtllm-serve`."""

from collections.abc import Mapping
from functools import lru_cache

from specdec.api.model import SpeculativeModel
from specdec.backends import one_process, open_limits
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend, Warnings
from specdec.backends.pytorch import configuration, generations, memory, methods, rules
from specdec.servers.trtllm_serve.serving import OPTIONS
from specdec.triton import llm_api
from specdec.triton.layout import RankPlan
from specdec.triton.llm_api import LlmApiPlan


class PyTorch:
    """This backend builds nothing. The server is one process; the LLM API starts further ones."""

    warnings: tuple[Warnings, ...] = (rules.warnings,)
    rules = rules.RULES
    memory = staticmethod(memory.footprints)
    builder = None

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method of the LLM API."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """Arguments of the LLM API that no field of the spec sets."""
        return (configuration.ADAPTERS,) if generations.of(version).adapters else ()

    def servers(self, model: SpeculativeModel) -> RankPlan:
        """The first GPUs of the pod; a draft has those of the target."""
        return one_process.servers(model)

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """Limits that follow from the checkpoint and the memory, where the spec has none."""
        return open_limits.sized(model, checkpoints, gpu_mib, self)

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """One model with `model.yaml`, or the options of `trtllm-serve`."""
        if not rules.in_triton(model):
            return {OPTIONS: configuration.options(model, facts)}
        instances = one_process.instances(model)
        plan = LlmApiPlan(
            configuration=configuration.text(model, facts),
            decoupled=model.spec.serving.streaming,
            gpu_device_ids=instances if len(instances) > 1 else (),
            max_queue_size=model.spec.serving.max_queue_size,
            lora=configuration.has_adapters(model.spec.runtime.parameters),
        )
        return _rendered(plan)


@lru_cache(maxsize=16)
def _rendered(plan: LlmApiPlan) -> Mapping[str, str]:
    return llm_api.files(plan)


BACKEND: Backend = PyTorch()
