"""How serving pods are scaled, protected, replaced and placed."""

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


class Disruption(Value):
    """How many replicas a drain of nodes may take at once; only one of the bounds is set."""

    mode: Literal["Enabled", "Disabled"] = "Enabled"
    max_unavailable: int | None = None
    min_available: int | None = None


class Rollout(Value):
    """How a new revision replaces the old one; absent counts follow from what pods take."""

    strategy: Literal["RollingUpdate", "Recreate"] = "RollingUpdate"
    max_surge: int | None = None
    max_unavailable: int | None = None


class ResourceClaim(Value):
    """A claim of dynamic resource allocation that each pod takes: an existing one, or by template.

    `request` narrows what the container gets of it; absent means all.
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    request: str | None = None
