"""What changes the number of replicas: an autoscaler that writes the resource's scale subresource.

It points at the SpeculativeModel, not at the Deployment: `spec.serving.replicas` stays the one
place that says how many there are, whoever writes it, and the operator only reads it.
"""

from typing import Any

from specdec.api.kinds import EXTRAS
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.api.operations import Scaling, ScalingMetric
from specdec.desired.child import metadata


def objects(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """The autoscaler of a resource that has one; a suspended one has nothing to scale."""
    scaling = model.spec.serving.scaling
    if scaling is None or model.spec.suspend:
        return ()
    make = _scaled_object if scaling.driver == "KEDA" else _autoscaler
    kind, spec = make(scaling)
    name = model.metadata.name
    target = {"apiVersion": API_VERSION, "kind": KIND, "name": name}
    body = {
        "apiVersion": EXTRAS[kind].version,
        "kind": kind,
        "metadata": metadata(model, name, "scaling"),
        "spec": {"scaleTargetRef": target, **spec},
    }
    return (body,)


def _autoscaler(scaling: Scaling) -> tuple[str, dict[str, Any]]:
    spec = {
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
        "metrics": [_metric(one) for one in scaling.metrics],
        "behavior": _behavior(scaling),
    }
    return "HorizontalPodAutoscaler", spec


def _metric(metric: ScalingMetric) -> dict[str, Any]:
    if metric.type == "Cpu":
        target = {"type": "Utilization", "averageUtilization": int(metric.target)}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    average = {"type": "AverageValue", "averageValue": metric.target}
    return {"type": "Pods", "pods": {"metric": {"name": metric.name}, "target": average}}


def _scaled_object(scaling: Scaling) -> tuple[str, dict[str, Any]]:
    spec = {
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        "cooldownPeriod": scaling.scale_down_seconds,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(scaling)}},
        "triggers": [_trigger(scaling, one) for one in scaling.metrics],
    }
    return "ScaledObject", spec


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
    """Engines take minutes to load: a replica that goes too early is missed for long."""
    return {"scaleDown": {"stabilizationWindowSeconds": scaling.scale_down_seconds}}
