"""The endpoint's own Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specdec.servers.totals import Load

# The first gauge by which routers read the load.
WAITING = "vllm:num_requests_waiting"
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
            "Time from a parsed request to the first piece of its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.duration = Histogram(
            "specdec_openai_request_seconds",
            "Time from a parsed request to the end of its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._waiting = self._router_gauge(WAITING, "Requests that wait for others to end.")
        self._running = self._router_gauge(
            "vllm:num_requests_running", "Requests that are being decoded."
        )
        self._kv_cache = self._router_gauge(
            "vllm:kv_cache_usage_perc", "Share of the target's KV cache in use, 0 to 1."
        )

    def set_load(self, load: Load | None, model: str) -> None:
        """Publish the load under vLLM's names, and nothing for what is unknown."""
        values = (load.waiting, load.running, load.kv_cache) if load else (None, None, None)
        gauges = (self._waiting, self._running, self._kv_cache)
        for gauge, value in zip(gauges, values, strict=True):
            if value is None:
                gauge.clear()
            else:
                # A server has one engine.
                gauge.labels(model, "0").set(value)

    def _router_gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["model_name", "engine"], registry=self.registry)
