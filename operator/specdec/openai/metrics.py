"""The endpoint's own Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "specdec_openai_requests_total",
            "Requests by path and HTTP status; 499 is a client that disconnected.",
            ["path", "status"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "specdec_openai_requests_in_flight",
            "Requests that are being answered.",
            registry=self.registry,
        )
        self.first_piece = Histogram(
            "specdec_openai_first_piece_seconds",
            "Time from a request to the first piece of its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.duration = Histogram(
            "specdec_openai_request_seconds",
            "Time from a request to the end of its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
