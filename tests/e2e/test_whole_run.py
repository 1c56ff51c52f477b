"""Checks of the whole run of this layer; the name of this file sorts it last."""

from pathlib import Path

import pytest

from chart.judging import HEALTH, MOVING, judged
from controlplane.audit import Right
from e2e.record import Record, written
from e2e.world import World


def whole(session: pytest.Session) -> bool:
    """Return whether the session includes every test file of this layer."""
    here = Path(__file__).parent
    ran = {item.path for item in session.items}
    return ran >= set(here.glob("test_*.py"))


def test_argo_cd_health_fits_every_status_of_the_run(
    world: World, served: str, record: Record, request: pytest.FixtureRequest
) -> None:
    world.wait(
        lambda: record.has(world.get(served)),
        lambda: f"the watch is behind on {served}",
    )
    seen = judged(record.statuses)
    assert ("Serving", "Healthy") in seen
    if whole(request.session):
        phases = {phase for phase, _ in seen}
        assert phases >= {*MOVING, "Serving", "Suspended", "Failed"}, sorted(phases)
        assert {health for _, health in seen} == set(HEALTH.values())
        # In every phase, a pod that cannot start makes the health Degraded.
        assert ("Starting", "Degraded") in seen


def test_operator_writes_only_the_status_of_a_resource(served: str, record: Record) -> None:
    assert written(record.log) == {Right("patch", "specdec.dev", "speculativemodels/status")}
