"""Checkpoints that vLLM serves as they are, in Triton or in vLLM's own server."""

from collections.abc import Mapping
from functools import lru_cache

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends import one_process
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.footprint import Footprint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend, Warnings
from specdec.backends.vllm import configuration, limits, memory, methods, rules
from specdec.servers.vllm_serve.serving import OPTIONS
from specdec.triton import vllm
from specdec.triton.layout import RankPlan
from specdec.triton.vllm import VllmPlan


class Vllm:
    """This backend builds nothing. The server is one process; vLLM starts further ones."""

    warnings: tuple[Warnings, ...] = (rules.warnings,)
    rules = rules.RULES
    builder = None

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """The one process for each GPU, which has target, draft and heads."""
        return memory.footprints(model, checkpoints, self.method(model))

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The method of vLLM."""
        return methods.of(model)

    def parameters(self, version: str) -> tuple[str, ...]:
        """None: `spec.runtime.arguments` has the further arguments of vLLM."""
        del version
        return ()

    def servers(self, model: SpeculativeModel) -> RankPlan:
        """The first GPUs of the pod; a draft has those of the target."""
        return one_process.servers(model)

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """Limits that follow from the checkpoint and the memory, where the spec has none."""
        return limits.sized(model, checkpoints, gpu_mib, self)

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """One model with `model.json`, or the options of vLLM's own server."""
        need = self.memory(model, facts.checkpoints).get("target")
        values = configuration.arguments(model, facts, need.kv_per_token if need else None)
        if not rules.in_triton(model):
            runtime = model.spec.runtime
            version = runtime.version or support(runtime.backend).default_version
            return {OPTIONS: configuration.options(values, version)}
        instances = one_process.instances(model)
        plan = VllmPlan(
            arguments=configuration.text(values),
            decoupled=model.spec.serving.streaming,
            gpu_device_ids=instances if len(instances) > 1 else (),
            max_queue_size=model.spec.serving.max_queue_size,
        )
        return _rendered(plan)


@lru_cache(maxsize=16)
def _rendered(plan: VllmPlan) -> Mapping[str, str]:
    return vllm.files(plan)


BACKEND: Backend = Vllm()
