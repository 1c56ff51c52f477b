"""The draft counts of the LLM API's model: in each answer."""

from typing_extensions import override

from specdec.servers import triton_load
from specdec.servers.counting import LLM_API_UNCOUNTED, Counters
from specdec.servers.totals import Load


class LlmApiCounters(Counters):
    """The model reports no other counts; Triton knows the requests in its queue."""

    uncounted = LLM_API_UNCOUNTED

    @override
    def in_answers(self, version: str) -> bool:
        return True

    @override
    def load(self, page: str, model: str, in_flight: int) -> Load:
        values = triton_load.samples(page)
        return triton_load.engine_load(values, triton_load.queued(values, model), in_flight)


COUNTERS = LlmApiCounters()
