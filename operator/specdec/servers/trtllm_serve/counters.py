"""The draft counts of `trtllm-serve`: in its metrics, in two spellings."""

from specdec.servers.counting import LLM_API_UNCOUNTED, Counters


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
    gauges = (
        "trtllm_num_requests_running",
        "trtllm_num_requests_waiting",
        "trtllm_kv_cache_utilization",
    )
    settles_seconds = 10.0
    uncounted = LLM_API_UNCOUNTED


COUNTERS = TrtllmServeCounters()
