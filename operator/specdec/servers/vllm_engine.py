"""What both kinds of server with vLLM share: variables, metrics, and lines of its log.

Source: vLLM, `envs.py`, `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`.
"""

from specdec.api.versions import at_least
from specdec.servers.counting import Counters
from specdec.triton.layout import Launch

# vLLM never asks the hub for a model, and reports no usage.
VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
# From this version on, vLLM's own server can put the counts of a request's drafts into its answer.
COUNTS_BY_REQUEST = "0.32.0"
GENERATED = "vllm:generation_tokens_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


def environment(launch: Launch) -> dict[str, str]:
    """Variables of the server's container. vLLM starts its ranks itself, without MPI."""
    del launch
    return dict(VARIABLES)


def counts_by_request(version: str) -> bool:
    """Whether answers of vLLM's own server can have the counts of draft tokens."""
    return at_least(version, COUNTS_BY_REQUEST)


class VllmCounters(Counters):
    """vLLM's own counters of all requests. They exist only if the server drafts."""

    drafts = (
        ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
    )
    rounds = "vllm:spec_decode_num_drafts_total"
    generated = GENERATED
    gauges = (RUNNING, WAITING, "vllm:kv_cache_usage_perc")
    # The engine reports after each step, in another process.
    settles_seconds = 2.0
