"""The autoscaler of a resource: it writes the scale subresource of the SpeculativeModel.

It does not scale the Deployment itself, so that `spec.serving.replicas` always holds the desired
number. The operator reads that field and never writes it.
"""

from typing import Any

from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.api.operations import Scaling, ScalingMetric
from specdec.desired.child import metadata


def kind(model: SpeculativeModel) -> str | None:
    """The kind of the autoscaler; None without one. A suspended resource has nothing to scale."""
    scaling = model.spec.serving.scaling
    if scaling is None or model.spec.suspend:
        return None
    return "ScaledObject" if scaling.driver == "KEDA" else "HorizontalPodAutoscaler"


def objects(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """The autoscaler of a resource that has one."""
    scaling, kind_ = model.spec.serving.scaling, kind(model)
    if scaling is None or kind_ is None:
        return ()
    spec = _scaled_object(scaling) if kind_ == "ScaledObject" else _autoscaler(scaling)
    name = model.metadata.name
    target = {"apiVersion": API_VERSION, "kind": KIND, "name": name}
    body = {
        "apiVersion": OPTIONAL_KINDS[kind_].version,
        "kind": kind_,
        "metadata": metadata(model, name, "scaling"),
        "spec": {"scaleTargetRef": target, **spec},
    }
    return (body,)


def _autoscaler(scaling: Scaling) -> dict[str, Any]:
    return {
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
        "metrics": [_metric(metric) for metric in scaling.metrics],
        "behavior": _behavior(scaling),
    }


def _metric(metric: ScalingMetric) -> dict[str, Any]:
    if metric.type == "Cpu":
        target = {"type": "Utilization", "averageUtilization": int(metric.target)}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    average = {"type": "AverageValue", "averageValue": metric.target}
    return {"type": "Pods", "pods": {"metric": {"name": metric.name}, "target": average}}


def _scaled_object(scaling: Scaling) -> dict[str, Any]:
    return {
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        "cooldownPeriod": scaling.scale_down_seconds,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(scaling)}},
        "triggers": [_trigger(scaling, metric) for metric in scaling.metrics],
    }


def _trigger(scaling: Scaling, metric: ScalingMetric) -> dict[str, Any]:
    if metric.type == "Cpu":
        return {"type": "cpu", "metricType": "Utilization", "metadata": {"value": metric.target}}
    return {
        "type": "prometheus",
        "metadata": {
            "serverAddress": scaling.prometheus_address,
            "query": metric.query,
            "threshold": metric.target,
        },
    }


def _behavior(scaling: Scaling) -> dict[str, Any]:
    """Scale down slowly: a new replica takes minutes to load its engines."""
    return {"scaleDown": {"stabilizationWindowSeconds": scaling.scale_down_seconds}}
