"""A verification that cannot run, fails, or delays Ready by its gate."""

import json

import pytest

from support.simulated_cluster import World, fetched, resource, waiting
from unit.pipeline.verifying import Json, finish, reasons, result_of, serving


def test_verification_waits_for_available() -> None:
    world = World(resource())
    world.bind()
    for _ in range(5):
        world.step()
        for name, job in list(world.jobs.items()):
            if "status" not in job:
                world.finish(name, fetched() if "-fetch-" in name else {})
    assert world.condition("Available")["status"] == "False"
    assert world.named("verify") == []
    assert reasons(world)["SpeculationActive"] == ("Unknown", "Waiting")


def test_failed_verification_is_reported_and_not_repeated() -> None:
    world = serving()
    error = {"reason": "ServerUnreachable", "message": "connection to pair.demo.svc:8001 failed"}
    world.fail(world.job("verify"), json.dumps({"error": error}))
    decision = world.step()
    assert reasons(world)["SpeculationActive"] == ("Unknown", "ServerUnreachable")
    message = world.condition("SpeculationActive")["message"]
    assert "connection to pair.demo.svc:8001 failed" in message
    assert f"kubectl delete job {world.job('verify')}" in message
    assert decision.requeue_after is None
    assert world.condition("Ready")["status"] == "True"
    world.delete("Job", world.job("verify"))
    world.step()
    assert len(world.named("verify")) == 1, (
        "after its deletion the next reconcile creates it again"
    )


def test_deadline_message_has_the_verification_field() -> None:
    world = serving()
    world.fail(world.job("verify"), "", reason="DeadlineExceeded")
    world.step()
    message = world.condition("SpeculationActive")["message"]
    assert "raise spec.verification.timeoutSeconds" in message


def test_verification_pod_that_cannot_start_is_requeued() -> None:
    world = serving()
    world.pod(world.job("verify"), waiting("ImagePullBackOff", "no such image"))
    decision = world.step()
    assert reasons(world)["SpeculationActive"] == ("Unknown", "ImagePullFailed")
    assert decision.requeue_after is not None


def test_verification_whose_result_is_lost_runs_again() -> None:
    world = serving()
    name = world.job("verify")
    world.finish(name, result_of(world))
    world.pods.clear()
    world.step()
    assert name not in world.jobs
    world.step()
    assert name in world.jobs


def test_suspended_resource_is_not_verified() -> None:
    world = serving()
    world.spec["suspend"] = True
    world.step()
    world.step()
    assert world.named("verify") == []
    assert reasons(world)["SpeculationActive"] == ("Unknown", "Suspended")


class TestGate:
    def test_gate_holds_ready_until_the_verification_succeeds(self) -> None:
        world = serving(verification={"mode": "Gate"})
        ready = world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Queued")
        assert ready["message"].endswith(
            "; this blocks Ready because spec.verification.mode is Gate"
        )
        assert world.cr["status"]["phase"] == "Verifying"
        finish(world)
        assert world.condition("Ready")["status"] == "True"

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"matched": 1}, "Diverged"),
            ({"active": False}, "NoDraftTokensObserved"),
            ({"speedupPercent": 99}, "SlowerThanBaseline"),
        ],
    )
    def test_gate_stays_closed_after_a_bad_result(self, changed: Json, reason: str) -> None:
        world = serving(verification={"mode": "Gate"})
        finish(world, **changed)
        assert world.condition("Ready")["reason"] == reason
        assert world.cr["status"]["phase"] == "Failed"
        world.spec["verification"] = {"mode": "Report"}
        world.step()
        assert world.condition("Ready")["status"] == "True"

    def test_gate_opens_where_methods_are_not_comparable(self) -> None:
        world = serving("Lookahead", verification={"mode": "Gate"})
        finish(world)
        assert world.condition("Ready")["status"] == "True"

    def test_gate_stays_closed_after_a_failed_job(self) -> None:
        world = serving(verification={"mode": "Gate"})
        world.fail(world.job("verify"), "it failed")
        world.step()
        assert world.condition("Ready")["reason"] == "VerificationFailed"
        assert world.cr["status"]["phase"] == "Failed"
