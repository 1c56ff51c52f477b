"""What the operator measures of itself and tells of its resources, for Prometheus."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from specdec.api.conditions import Condition

RECONCILES = Counter("specdec_reconciles_total", "Reconciles by how they ended.", ["result"])
RECONCILE_SECONDS = Histogram(
    "specdec_reconcile_duration_seconds",
    "Duration of one reconcile.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
ERRORS = Counter("specdec_reconcile_errors_total", "Reconciles that failed, by kind.", ["kind"])
API_REQUESTS = Counter(
    "specdec_api_requests_total",
    "Requests to the API server by verb, kind and HTTP status (0: no answer).",
    ["verb", "kind", "code"],
)
QUEUE_DEPTH = Gauge("specdec_queue_depth", "Resources that wait for a reconcile.")
RESOURCES = Gauge("specdec_resources", "Resources seen by the last resync.")
LEADER = Gauge("specdec_operator_leader", "1 where the operator works, 0 where it stands by.")

# Not `namespace`: a scrape puts the operator's own into that label.
_WHOSE = ("model_namespace", "model_name")
_DONE = ("Built", "Prebuilt")
Key = tuple[str, str]
"""Namespace and name of a resource."""


class Models(Collector):
    """The state of every resource as its last reconcile left it."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Sequence[Condition], Sequence[Mapping[str, Any]]]] = {}

    def see(
        self, key: Key, conditions: Sequence[Condition], engines: Sequence[Mapping[str, Any]]
    ) -> None:
        """Keep what a reconcile says of a resource: conditions, and `status.engines`."""
        self._seen[key] = (conditions, engines)

    def forget(self, key: Key) -> None:
        """Drop a resource that is gone."""
        self._seen.pop(key, None)

    def keep(self, keys: Iterable[Key]) -> None:
        """Drop every other resource: one may go while it is being reconciled."""
        for gone in set(self._seen).difference(keys):
            self.forget(gone)

    @override
    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One sample for each condition, and one for each engine with its build's progress."""
        conditions = GaugeMetricFamily(
            "specdec_model_condition",
            "1 for every condition of a resource, with what it says now.",
            labels=[*_WHOSE, "type", "status", "reason"],
        )
        builds = GaugeMetricFamily(
            "specdec_model_engine_percent",
            "How far the build of an engine is, 0 to 100.",
            labels=[*_WHOSE, "role", "state"],
        )
        # A scrape comes from another thread than the reconciles: it takes a copy.
        for key, (found, engines) in list(self._seen.items()):
            for condition in found:
                said = (condition.type, condition.status, condition.reason)
                conditions.add_metric([*key, *map(str, said)], 1)
            for engine in engines:
                state = str(engine.get("state", ""))
                done = 100 if state in _DONE else engine.get("percent", 0)
                builds.add_metric([*key, str(engine["role"]), state], done)
        yield conditions
        yield builds


MODELS = Models()
REGISTRY.register(MODELS)
