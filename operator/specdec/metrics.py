"""What the operator measures of itself, for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

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
