"""Reasons of `Ready` itself; otherwise it has the reason of the condition that blocks it."""

from specdec.api.condition_types import MEASURED, Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.READY)


class ReadyReason(Reason):
    """Reasons of `Ready` itself."""

    SERVING = _SECTION.progress(
        "Serving",
        "all conditions up to `Available` hold, and with `Gate` the three measured ones; "
        "`ScalingReady` and `RouteReady` do not count",
        health=Health.HEALTHY,
    )
    SUSPENDED = _SECTION.progress(
        "Suspended",
        "`spec.suspend` is true: the pods are deleted; the claim, and the engines on it, are kept",
        "set it to `false`",
        also=(
            Type.MODELS_FETCHED,
            Type.ENGINES_READY,
            Type.REPOSITORY_READY,
            Type.AVAILABLE,
            *MEASURED,
        ),
        health=Health.SUSPENDED,
    )
    INTERNAL_ERROR = _SECTION.failed(
        "InternalError",
        "the operator failed on this resource; the other conditions keep their last state",
        "search the operator's log for the source line in the message, and report the error; "
        "revert the last change of the spec or use another release",
    )
