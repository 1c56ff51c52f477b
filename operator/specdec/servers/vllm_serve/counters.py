"""The draft counts of vLLM's own server: in its metrics, and in answers of newer releases."""

from typing_extensions import override

from specdec.servers.vllm_engine import COUNTS_BY_REQUEST, VllmCounters, counts_by_request


class VllmServeCounters(VllmCounters):
    """Answers have counts where the command line asks for them."""

    uncounted = (
        f"answers have counts from vLLM {COUNTS_BY_REQUEST} on, and the counters of an older "
        "server can be read only if spec.serving.replicas is 1"
    )

    @override
    def in_answers(self, version: str) -> bool:
        return counts_by_request(version)


COUNTERS = VllmServeCounters()
