"""How serving pods are scaled, protected, replaced and placed."""

from typing import Literal

from specdec.api.value import Value


class ScalingMetric(Value):
    """A metric that the autoscaler keeps at or below `target` for each replica.

    With type Pods it is the metric `name` that pods report, with Prometheus the result of `query`,
    and with Cpu the percentage of the requested CPU.
    """

    type: Literal["Pods", "Cpu", "Prometheus"]
    target: str
    name: str | None = None
    query: str | None = None


class Scaling(Value):
    """The autoscaler that changes `serving.replicas`: its driver, bounds and metrics."""

    max_replicas: int
    metrics: tuple[ScalingMetric, ...]
    driver: Literal["HPA", "KEDA"] = "HPA"
    min_replicas: int = 1
    scale_down_seconds: int = 600
    prometheus_address: str | None = None


class Disruption(Value):
    """How many replicas node drains may evict at once; at most one of the bounds is set."""

    mode: Literal["Enabled", "Disabled"] = "Enabled"
    max_unavailable: int | None = None
    min_available: int | None = None


class Rollout(Value):
    """How a new revision replaces the old one; unset counts depend on whether pods use GPUs."""

    strategy: Literal["RollingUpdate", "Recreate"] = "RollingUpdate"
    max_surge: int | None = None
    max_unavailable: int | None = None


class ResourceClaim(Value):
    """A claim of dynamic resource allocation for each pod: an existing one, or from a template.

    `request` is the request of the claim that the container gets; if unset, the container gets all
    requests.
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    request: str | None = None
