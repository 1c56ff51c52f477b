"""How serving pods are scaled."""

from typing import Literal

from specdec.api.value import Value


class ScalingMetric(Value):
    """What one replica should have at most.

    `target` is a quantity for each replica: of the metric `name` that pods report (Pods), of what
    `query` answers (Prometheus), or of the requested CPU in percent (Cpu).
    """

    type: Literal["Pods", "Cpu", "Prometheus"]
    target: str
    name: str | None = None
    query: str | None = None


class Scaling(Value):
    """Who changes `serving.replicas`, between which bounds and by which metrics."""

    max_replicas: int
    metrics: tuple[ScalingMetric, ...]
    driver: Literal["HPA", "KEDA"] = "HPA"
    min_replicas: int = 1
    scale_down_seconds: int = 600
    prometheus_address: str | None = None
