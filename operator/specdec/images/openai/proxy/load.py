"""How loaded a server is, as routers read it: from the page of `trtllm-serve`'s metrics."""

import re

from specdec.images.openai.load import Load

_RUNNING, _WAITING = "trtllm_num_requests_running", "trtllm_num_requests_waiting"
_CACHE = "trtllm_kv_cache_utilization"
_SAMPLE = re.compile(
    rf"^({_RUNNING}|{_WAITING}|{_CACHE})(?:\{{[^}}]*\}})? (\S+)$".encode(), re.MULTILINE
)


def load(page: bytes, in_flight: int) -> Load:
    """The load that a page reports; `in_flight` replaces a missing number of running requests."""
    try:
        values = {name.decode(): float(value) for name, value in _SAMPLE.findall(page)}
    except ValueError:
        values = {}
    running = values.get(_RUNNING, in_flight)
    return Load(int(values.get(_WAITING, 0)), int(running), values.get(_CACHE))
