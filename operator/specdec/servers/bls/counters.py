"""The draft counts of the BLS: in its answers in newer releases, and in its metrics."""

from typing_extensions import override

from specdec.servers import triton_load
from specdec.servers.chunk import DRAFTED
from specdec.servers.counting import Counters
from specdec.servers.totals import Load
from specdec.triton import contract
from specdec.triton.model_names import BLS, PREPROCESSING, TARGET

_RUNNING, _WAITING = "specdec_requests_running", "specdec_requests_waiting"


class BlsCounters(Counters):
    """The counters of `operator/bls`. Drafts inside the engine show in the steps of its stream."""

    drafts = (("specdec_draft_tokens_total", "specdec_accepted_tokens_total"),)
    rounds = "specdec_rounds_total"
    generated = "specdec_generated_tokens_total"
    by_source = (
        "specdec_draft_tokens_by_source_total",
        "specdec_accepted_tokens_by_source_total",
    )
    engine = TARGET
    uncounted = (
        "this spec.runtime.version reports none, and the server's counters can be read only if "
        "the Service has one pod; set the version to 0.19.0 or later"
    )

    @override
    def in_answers(self, version: str) -> bool:
        return DRAFTED in {tensor.name for tensor in contract.outputs(BLS, version)}

    @override
    def load(self, page: str, model: str, in_flight: int) -> Load:
        """The BLS knows the requests that it has taken over, and Triton those in its queue."""
        values = triton_load.samples(page, _RUNNING, _WAITING)
        waiting = triton_load.queued(values, model)
        running = values.get((_RUNNING, model, ""))
        if running is None:
            waiting += triton_load.queued(values, PREPROCESSING, TARGET)
            return triton_load.engine_load(values, waiting, in_flight)
        waiting += values.get((_WAITING, model, ""), 0.0)
        return Load(int(waiting), int(running), triton_load.cache(values))


COUNTERS = BlsCounters()
