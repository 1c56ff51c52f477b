"""The draft counts of `trtllm-serve`: in its metrics, in two spellings."""

import re

from typing_extensions import override

from specdec.servers.counting import LLM_API_UNCOUNTED, Counters
from specdec.servers.totals import Load

_RUNNING, _WAITING = "trtllm_num_requests_running", "trtllm_num_requests_waiting"
_CACHE = "trtllm_kv_cache_utilization"
_SAMPLE = re.compile(rf"^({_RUNNING}|{_WAITING}|{_CACHE})(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


class TrtllmServeCounters(Counters):
    """Some releases count at the end of a request, others at their next report on iterations."""

    drafts = (
        ("trtllm_spec_decode_drafted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"),
        (
            "trtllm_spec_decode_num_draft_tokens_total",
            "trtllm_spec_decode_num_accepted_tokens_total",
        ),
    )
    generated = "trtllm_generation_tokens_total"
    settles_seconds = 10.0
    uncounted = LLM_API_UNCOUNTED

    @override
    def load(self, page: str, model: str, in_flight: int) -> Load:
        """As `Counters.load`; a page with a value that is no number has no values."""
        try:
            values = {name: float(value) for name, value in _SAMPLE.findall(page)}
        except ValueError:
            values = {}
        running = values.get(_RUNNING, in_flight)
        return Load(int(values.get(_WAITING, 0)), int(running), values.get(_CACHE))


COUNTERS = TrtllmServeCounters()
