"""How loaded a tritonserver is, from the page of its metrics port."""

import re
from collections.abc import Mapping

from specdec.servers.totals import Load
from specdec.triton.model_names import TARGET

_QUEUE = "nv_inference_pending_request_count"
_ENGINE = "nv_trt_llm_request_metrics"
_CACHE = "nv_trt_llm_kv_cache_block_metrics"
_LABEL = re.compile(r'(\w+)="([^"]*)"')

# By metric, model and category; a metric without categories has an empty one.
Samples = Mapping[tuple[str, str, str], float]


def samples(page: str, *more: str) -> Samples:
    """The values that show load, and those of further metrics.

    Raises:
        ValueError: a value is not a number.
    """
    names = "|".join((_QUEUE, _ENGINE, _CACHE, *more))
    values = {}
    for name, labels, value in re.findall(rf"^({names})\{{([^}}]*)\}} (\S+)$", page, re.MULTILINE):
        named = dict(_LABEL.findall(labels))
        category = named.get("request_type") or named.get("kv_cache_block_type") or ""
        values[name, named.get("model", ""), category] = float(value)
    return values


def queued(values: Samples, *models: str) -> float:
    """The requests in the queues of models."""
    return sum(values.get((_QUEUE, model, ""), 0.0) for model in models)


def cache(values: Samples) -> float | None:
    """The share of the target's cache that is in use; None if unknown."""
    return values.get((_CACHE, TARGET, "fraction"))


def engine_load(values: Samples, waiting: float, in_flight: int) -> Load:
    """The load of a server whose engine knows the requests, if it reports them.

    Args:
        values: of the page.
        waiting: requests in the queues of its models.
        in_flight: requests that are being answered. Those of them that do not wait count as
            running if the engine reports no number.
    """
    waiting += values.get((_ENGINE, TARGET, "waiting"), 0.0)
    running = values.get((_ENGINE, TARGET, "scheduled"), max(0.0, in_flight - waiting))
    return Load(int(waiting), int(running), cache(values))
