"""The draft counts of vLLM's model on Triton: in each answer, and in metrics by vLLM's names."""

from typing_extensions import override

from specdec.servers import triton_load
from specdec.servers.totals import Load
from specdec.servers.vllm_engine import VllmCounters


class TritonVllmCounters(VllmCounters):
    """A request may also wait in Triton's queue, before it reaches the engine."""

    @override
    def in_answers(self, version: str) -> bool:
        return True

    @override
    def load(self, page: str, model: str, in_flight: int) -> Load:
        own = super().load(page, model, in_flight)
        queued = int(triton_load.queued(triton_load.samples(page), model))
        return Load(own.waiting + queued, own.running, own.kv_cache)


COUNTERS = TritonVllmCounters()
