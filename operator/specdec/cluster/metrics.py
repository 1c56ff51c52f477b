"""The operator's Prometheus metrics: about itself, and about the state of its resources.

The controller and `Cluster` update them, and the operator's metrics port serves them. Names and
labels are stable, because dashboards and alerts use them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from specdec.api.conditions import Condition

RECONCILES = Counter("specdec_reconciles_total", "Reconciles by result.", ["result"])
RECONCILE_SECONDS = Histogram(
    "specdec_reconcile_duration_seconds",
    "Duration of one reconcile.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
ERRORS = Counter("specdec_reconcile_errors_total", "Reconciles that failed, by kind.", ["kind"])
API_REQUESTS = Counter(
    "specdec_api_requests_total",
    "Requests to the API server by verb, kind and HTTP status (0: no response).",
    ["verb", "kind", "code"],
)
WATCH_RESTARTS = Counter(
    "specdec_watch_restarts_total", "Restarts of the watches after a fault that ended them."
)
QUEUE_DEPTH = Gauge("specdec_queue_depth", "Resources that wait for a reconcile.")
RESOURCES = Gauge("specdec_resources", "Resources seen by the last resync.")
LEADER = Gauge("specdec_operator_leader", "1 on the active operator, 0 on a standby.")

# Not `namespace`: Prometheus sets that label to the operator's own namespace.
_MODEL_LABELS = ("model_namespace", "model_name")
_DONE = ("Built", "Prebuilt")
Key = tuple[str, str]
"""Namespace and name of a resource."""


class ModelCollector(Collector):
    """Exports the state of every resource as of its last reconcile."""

    def __init__(self) -> None:
        self._states: dict[Key, tuple[Sequence[Condition], Mapping[str, Any]]] = {}

    def set(self, key: Key, conditions: Sequence[Condition], status: Mapping[str, Any]) -> None:
        """Replace the state of a resource: its conditions, and the rest of its status."""
        self._states[key] = (conditions, status)

    def forget(self, key: Key) -> None:
        """Drop a deleted resource."""
        self._states.pop(key, None)

    def retain(self, keys: Iterable[Key]) -> None:
        """Drop every resource but these: a resource may be deleted while its reconcile runs."""
        for key in set(self._states).difference(keys):
            self.forget(key)

    @override
    def collect(self) -> Iterable[GaugeMetricFamily]:
        """A sample for each condition, each engine's build, and the measured speed."""
        conditions = GaugeMetricFamily(
            "specdec_model_condition",
            "1 for every condition of a resource, with its status and reason.",
            labels=[*_MODEL_LABELS, "type", "status", "reason"],
        )
        builds = GaugeMetricFamily(
            "specdec_model_engine_percent",
            "Progress of an engine build in percent, 0 to 100.",
            labels=[*_MODEL_LABELS, "role", "state"],
        )
        speeds = GaugeMetricFamily(
            "specdec_model_speed_ratio",
            "Measured speed with speculation, as a multiple of the target alone.",
            labels=_MODEL_LABELS,
        )
        # Scrapes run in another thread than reconciles, so iterate over a copy.
        for key, (model_conditions, status) in list(self._states.items()):
            for condition in model_conditions:
                values = (condition.type, condition.status, condition.reason)
                conditions.add_metric([*key, *map(str, values)], 1)
            speed = status.get("speculation", {}).get("speedupPercent")
            if speed is not None:
                speeds.add_metric(key, speed / 100)
            for engine in status.get("engines", ()):
                state = str(engine.get("state", ""))
                percent = 100 if state in _DONE else engine.get("percent", 0)
                builds.add_metric([*key, str(engine["role"]), state], percent)
        yield conditions
        yield builds
        yield speeds


MODELS = ModelCollector()
REGISTRY.register(MODELS)
