"""How loaded a server is, as routers read it: from the page of Triton's metrics port."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.request import urlopen

from specdec.triton.model_names import PREPROCESSING, TARGET

_SECONDS = 1.0
_QUEUE = "nv_inference_pending_request_count"
_BLS = "specdec_requests"
_ENGINE = "nv_trt_llm_request_metrics"
_CACHE = "nv_trt_llm_kv_cache_block_metrics"
_SAMPLE = re.compile(
    rf"^({_QUEUE}|{_BLS}_running|{_BLS}_waiting|{_ENGINE}|{_CACHE})\{{([^}}]*)\}} (\S+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_Samples = Mapping[tuple[str, str, str], float]


@dataclass(frozen=True)
class Load:
    """The load of one server.

    Attributes:
        waiting: requests that wait for others to end.
        running: requests that are being decoded.
        kv_cache: share of the target's cache that is in use, 0 to 1; None if unknown.
    """

    waiting: int
    running: int
    kv_cache: float | None


async def read(url: str, model: str, in_flight: int) -> Load | None:
    """The load of the server whose metrics are at `url` (`host:port`); None without metrics."""
    try:
        page = await asyncio.to_thread(_page, url)
        return load(page, model, in_flight)
    except (HTTPException, OSError, ValueError):
        return None


def load(page: str, model: str, in_flight: int) -> Load:
    """The load that a page in the Prometheus text format reports.

    The BLS knows the requests that it has taken over, and Triton those in its queue. A server
    without the BLS knows the requests of the engine, if the engine reports them.

    Args:
        page: of Triton's metrics port.
        model: the Triton model that the endpoint sends requests to.
        in_flight: requests that the endpoint answers. If the server reports no number of running
            requests, the requests of `in_flight` that do not wait count as running.

    Raises:
        ValueError: a value is not a number.
    """
    samples = _samples(page)
    running = samples.get((f"{_BLS}_running", model, ""))
    waiting = _sum(samples, _QUEUE, model)
    if running is not None:
        waiting += _sum(samples, f"{_BLS}_waiting", model)
    else:
        waiting += _sum(samples, _QUEUE, PREPROCESSING, TARGET)
        waiting += samples.get((_ENGINE, TARGET, "waiting"), 0.0)
        running = samples.get((_ENGINE, TARGET, "scheduled"), max(0.0, in_flight - waiting))
    return Load(int(waiting), int(running), samples.get((_CACHE, TARGET, "fraction")))


def _page(url: str) -> str:
    with urlopen(f"http://{url}/metrics", timeout=_SECONDS) as reply:
        page: str = reply.read().decode()
        return page


def _samples(page: str) -> _Samples:
    """The values by metric, model and category; a metric without categories has an empty one."""
    values = {}
    for name, labels, value in _SAMPLE.findall(page):
        named = dict(_LABEL.findall(labels))
        category = named.get("request_type") or named.get("kv_cache_block_type") or ""
        values[name, named.get("model", ""), category] = float(value)
    return values


def _sum(samples: _Samples, name: str, *models: str) -> float:
    return sum(samples.get((name, model, ""), 0.0) for model in models)
