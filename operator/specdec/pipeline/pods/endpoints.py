"""Whether the Service of a server leads to its ready pods."""

from dataclasses import replace
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.conditions import Condition
from specdec.api.reasons import AvailableReason
from specdec.pipeline.observed import Object, pod_ready
from specdec.pipeline.stage import Context

# A Service may need this long to list a pod that has become ready.
_LAG = timedelta(seconds=10)


def check(context: Context, role: str, condition: Condition) -> Condition:
    """The condition of a server; it becomes False if the Service leads to no ready address.

    A missing Service does not make it False: this reconcile creates the Service.
    """
    name = names.server_name(context.model, role)
    if condition.status != "True" or context.observed.endpoints.get(name, 1):
        return condition
    now = context.observed.now
    ready = [pod for pod in context.observed.serving_pods(role) if pod_ready(pod)]
    if all(now - _ready_since(pod, now) < _LAG for pod in ready):
        message = f"{condition.message}; Service {name} does not lead to them yet"
        return replace(condition, status="False", reason=AvailableReason.STARTING, message=message)
    message = (
        f"{condition.message}, but Service {name} leads to no ready address: "
        f"kubectl describe service {name}"
    )
    return replace(condition, status="False", reason=AvailableReason.NO_ENDPOINTS, message=message)


def _ready_since(pod: Object, now: datetime) -> datetime:
    conditions = (c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    changed = next(conditions).get("lastTransitionTime")
    return datetime.fromisoformat(changed) if changed else now
