"""Reasons of `ScalingReady`: the autoscaler. They never block `Ready`."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.SCALING_READY)


class ScalingReason(Reason):
    """Reasons of `ScalingReady`."""

    SCALER_ACTIVE = _SECTION.progress(
        "ScalerActive", "the autoscaler reads its metrics and may change `spec.serving.replicas`"
    )
    SCALER_STARTING = _SECTION.progress(
        "ScalerStarting",
        "no controller has reported on the autoscaler yet",
        "wait; with KEDA, check that its operator runs",
    )
    SCALER_DISABLED = _SECTION.progress(
        "ScalerDisabled",
        "`spec.serving.replicas` is 0; a HorizontalPodAutoscaler does not scale from 0",
        "`kubectl scale specm NAME --replicas=1`",
    )
    METRIC_MISSING = _SECTION.blocked(
        "MetricMissing",
        "the autoscaler cannot read a metric",
        "read the message: a metrics server or adapter is missing, or the pods request no CPU",
    )
    SCALER_FAILED = _SECTION.blocked(
        "ScalerFailed", "the autoscaler cannot scale", "read the autoscaler's error in the message"
    )
    KEDA_MISSING = _SECTION.blocked(
        "KedaMissing",
        "`spec.serving.scaling.driver` is `KEDA`, and the cluster does not have the kind "
        "ScaledObject",
        "install KEDA, or set `driver: HPA`",
    )
