"""What Argo CD has to say of a status, of whatever cluster, and whether its script does."""

from collections.abc import Iterable

from chart.helm import Object
from chart.lua import health
from controlplane.tour import current, phase
from specdec.api.reasons import Health, Severity, parse

# Of a resource that is on its way, in the order of the pipeline.
MOVING = ("Pending", "Fetching", "Building", "Publishing", "Starting", "Verifying")
# Between two reconciles of most resources, and so not seen of them.
BRIEF = "Checking"
HEALTH = {
    BRIEF: "Progressing",
    **dict.fromkeys(MOVING, "Progressing"),
    "Serving": "Healthy",
    "Suspended": "Suspended",
    "Failed": "Degraded",
}


def judged(bodies: Iterable[Object]) -> set[tuple[str, str]]:
    """Run the script over statuses; the phases and healths of those of the newest spec.

    Raises:
        AssertionError: a status has another health than its phase and reason ask for.
    """
    seen = set()
    for body in bodies:
        found, message = health(body)
        assert found == _wanted(body), (found, body["status"])
        if current(body):
            ready = _ready(body)
            assert message == f"{ready['reason']}: {ready['message']}"
            seen.add((phase(body), found))
    return seen


def _wanted(body: Object) -> str:
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
    (found,) = [c for c in body["status"]["conditions"] if c["type"] == "Ready"]
    return dict(found)
