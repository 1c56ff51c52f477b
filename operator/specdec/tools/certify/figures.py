"""The figures of an entry: the operator's benchmark, and the metrics of its servers at the end."""

from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from specdec.client.errors import RefusedError
from specdec.tools.inspect.figures import reading

Json = dict[str, Any]
_MIB = 1024 * 1024
_USED, _TOTAL = "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"


def benchmark(body: Mapping[str, Any]) -> Json | None:
    """What the operator's benchmark measured, in the form of a load; None without a benchmark.

    The speed of a level is relative to requests without drafts to the same server. There are no
    digests of answers: the operator compares them itself (`OutputEquivalent`).
    """
    measured = body.get("status", {}).get("benchmark", {})
    if measured.get("state") != "Completed" or measured.get("stale"):
        return None
    return {"levels": [_level(level) for level in measured["levels"]]}


def _level(level: Mapping[str, Any]) -> Json:
    served = level["speculative"]
    result: Json = {
        "concurrency": level["concurrency"],
        "requests": served["requests"],
        "failed": served["errors"],
        "tokensPerSecond": float(served["tokensPerSecond"]),
    }
    if "latencyP50Ms" in served:
        result["latencyP50Ms"] = float(served["latencyP50Ms"])
    if "speedupPercent" in level:
        result["speedupPercent"] = level["speedupPercent"]
    return result


def server(page: str) -> Json:
    """The counters since the server's start, by short name, and the memory of its GPUs in MiB.

    Empty if the page is not that of a server.
    """
    try:
        counted = reading(page, 0.0)
    except RefusedError:
        return {}
    figures: Json = {name: round(value) for name, value in sorted(counted.totals.items())}
    devices = _devices(page)
    return figures | ({"gpus": devices} if devices else {})


def _devices(page: str) -> list[Json]:
    """Used and total memory by GPU, in the order of the page and without identifiers."""
    by_metric: dict[str, list[float]] = {_USED: [], _TOTAL: []}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in by_metric:
                by_metric[sample.name].append(sample.value)
    return [
        {"usedMiB": round(used / _MIB), "totalMiB": round(total / _MIB)}
        for used, total in zip(by_metric[_USED], by_metric[_TOTAL], strict=False)
    ]


def pods(metrics: Mapping[str, str]) -> list[Json]:
    """The figures of each pod whose page has some."""
    read = ((name, server(page)) for name, page in sorted(metrics.items()))
    return [{"pod": name, **figures} for name, figures in read if figures]
