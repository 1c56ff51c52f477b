"""Whether clients reach the pods that are ready: the endpoints of a server's Service."""

from dataclasses import replace
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.conditions import Condition
from specdec.pipeline.observed import Object, pod_ready
from specdec.pipeline.stage import Context

# How long the endpoints may take to follow a pod that became ready before they are in doubt.
_LAG = timedelta(seconds=10)


def reached(context: Context, role: str, condition: Condition) -> Condition:
    """The condition of a server, False where its Service leads to none of its pods.

    A Service that is not there yet, or was deleted, is applied next.
    """
    name = names.server_name(context.model, role)
    if condition.status != "True" or context.observed.endpoints.get(name, 1):
        return condition
    pods = [pod for pod in context.observed.serving_pods(role) if pod_ready(pod)]
    if all(context.observed.now - _since(pod, context.observed.now) < _LAG for pod in pods):
        message = f"{condition.message}; Service {name} does not lead to them yet"
        return replace(condition, status="False", reason="Starting", message=message)
    message = (
        f"{condition.message}, but Service {name} leads to no ready address: "
        f"kubectl describe service {name}"
    )
    return replace(condition, status="False", reason="NoEndpoints", message=message)


def _since(pod: Object, now: datetime) -> datetime:
    """Since when a pod is ready."""
    ready = (c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    stamp = next(ready).get("lastTransitionTime")
    return datetime.fromisoformat(stamp) if stamp else now
