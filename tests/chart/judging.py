"""Compares the health that Argo CD's script reports with the health that a status requires."""

from collections.abc import Iterable

from chart.helm import Object
from chart.lua import health
from controlplane.tour import current, phase
from specdec.api.reasons import Health, Severity, parse

# The phases before serving, in the order of the pipeline.
MOVING = ("Pending", "Fetching", "Building", "Publishing", "Starting", "Verifying")
# Most resources leave this phase within one reconcile, so their status never has it.
BRIEF = "Checking"
HEALTH = {
    BRIEF: "Progressing",
    **dict.fromkeys(MOVING, "Progressing"),
    "Serving": "Healthy",
    "Suspended": "Suspended",
    "Failed": "Degraded",
}


def judged(bodies: Iterable[Object]) -> set[tuple[str, str]]:
    """Check the script's health for each status; return phase and health of current statuses.

    Raises:
        AssertionError: the health of the script differs from what phase and reason require.
    """
    seen = set()
    for body in bodies:
        actual, message = health(body)
        assert actual == _desired(body), (actual, body["status"])
        if current(body):
            ready = _ready(body)
            assert message == f"{ready['reason']}: {ready['message']}"
            seen.add((phase(body), actual))
    return seen


def _desired(body: Object) -> str:
    if not current(body):
        return "Progressing"
    now = phase(body)
    reason = parse(_ready(body)["reason"])
    assert reason is not None, body["status"]
    degraded = reason.severity is Severity.BLOCKED and reason.health is Health.DEGRADED
    if degraded and now in (BRIEF, *MOVING):
        return "Degraded"
    return HEALTH[now]


def _ready(body: Object) -> Object:
    (ready,) = [c for c in body["status"]["conditions"] if c["type"] == "Ready"]
    return dict(ready)
