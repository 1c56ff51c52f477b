"""Verification of the serving revision: its Job, and its result in the status."""

import json

import pytest

from controlplane.commanding import (
    assert_status_command_shows_all,
    assert_viewer_sees_the_status,
    specdec,
)
from controlplane.operating import Lab, Object, until
from controlplane.pipeline import (
    built,
    claim,
    fetched,
    published,
    resource,
    serve,
    unwritten,
    verified,
)
from specdec.tools.dry_run.simulated_cluster import measurement_result

pytestmark = pytest.mark.controlplane


def shown(lab: Lab) -> dict[str, str]:
    """Return the measured columns of `kubectl get`."""
    custom = "ACCEPT:.status.columns.acceptance,SPEED:.status.columns.speed"
    head, row = lab.kubectl("get", "specm", "pair", "-o", f"custom-columns={custom}").splitlines()
    return dict(zip(head.split(), row.split(), strict=True))


def status(lab: Lab) -> Object:
    value: Object = (lab.get("specm", "pair") or {})["status"]
    return value


def reasons(lab: Lab) -> set[str]:
    return {
        e["reason"]
        for e in lab.all("events.events.k8s.io")
        if e.get("reportingController") == "specdec.dev/operator"
    }


def built_and_published(lab: Lab, **changes: Object) -> None:
    """Apply a resource and end its Jobs until it is Available."""
    lab.apply(claim("pair"), resource("pair", **changes))
    fetched(lab)
    lab.wait("pair", "EnginesReady", "False", "Building")
    for job in lab.jobs("engine"):
        built(lab, job)
    published(lab)
    lab.wait("pair", "Available")


def test_result_is_reported_until_another_revision_serves(lab: Lab) -> None:
    serve(lab, "pair")
    first = lab.job("verify")
    assert shown(lab) == {"ACCEPT": "50%", "SPEED": "1.50x"}
    table = lab.kubectl("get", "specm", "pair").splitlines()[0].split()
    assert table.index("SPEED") == table.index("ACCEPT") + 1
    assert status(lab)["speculation"]["planHash"]
    # The operator writes events after the status that they report.
    good = {"DraftTokensObserved", "Equivalent", "Effective"}
    until(lambda: good <= reasons(lab), lambda: f"events of what is good: {reasons(lab)}")
    assert_status_command_shows_all(lab)
    assert_viewer_sees_the_status(lab)

    publish = lab.job("publish")
    lab.patch("specm", "pair", {"spec": {"speculation": {"draftTokens": 6}}})
    lab.wait("pair", "OutputEquivalent", "Unknown", "Stale")
    assert shown(lab) == {"ACCEPT": "<none>", "SPEED": "<none>"}
    assert status(lab)["speculation"]["previous"]["speedupPercent"] == 150
    published(lab, (publish,))
    verified(lab, (first,), speedupPercent=80, matched=15, divergence="prompt 3 differs")
    condition = lab.wait("pair", "OutputEquivalent", "False", "Diverged")
    assert "prompt 3 differs" in condition["message"]
    lab.wait("pair", "SpeculationEffective", "False", "SlowerThanBaseline")
    lab.wait("pair")
    assert shown(lab) == {"ACCEPT": "50%", "SPEED": "0.80x"}
    until(lambda: first not in lab.jobs("verify"), "no Job of what served before")
    until(lambda: {"Diverged", "SlowerThanBaseline"} <= reasons(lab), "events of what is bad")

    unwritten(lab, "pair")


def test_gate_holds_ready_until_verification_succeeds(lab: Lab) -> None:
    built_and_published(lab, verification={"mode": "Gate"})
    waiting = lab.wait("pair", "Ready", "False", "Verifying")
    assert waiting["message"].endswith(
        "; this blocks Ready because spec.verification.mode is Gate"
    )
    assert status(lab)["phase"] == "Verifying"
    job = lab.job("verify")
    error = {"reason": "PromptsInvalid", "message": "ConfigMap ours is missing: create it"}
    lab.finish(job, {"error": error}, exit_code=2)
    failed = lab.wait("pair", "SpeculationActive", "Unknown", "PromptsInvalid")
    assert f"kubectl delete job {job}" in failed["message"]
    lab.wait("pair", "Ready", "False", "PromptsInvalid")
    assert status(lab)["phase"] == "Failed"
    until(lambda: "PromptsInvalid" in reasons(lab), "an event of the failure")

    lab.kubectl("delete", "job", job)
    verified(lab)
    lab.wait("pair")


def test_benchmark_follows_verification_and_reports_its_errors(lab: Lab) -> None:
    built_and_published(lab, benchmark={"mode": "OnReady", "concurrency": [1]})
    lab.wait("pair", "BenchmarkCompleted", "Unknown", "Waiting")
    verified(lab)
    first = lab.job("benchmark")
    body = lab.get("job", first)
    assert body is not None
    lab.finish(first, measurement_result(body))
    done = lab.wait("pair", "BenchmarkCompleted", "True", "Completed")
    assert f"reports/pair-{lab.namespace}/" in done["message"]
    assert status(lab)["benchmark"]["levels"] == [{"concurrency": 1, "speedupPercent": 150}]

    lab.patch("specm", "pair", {"spec": {"benchmark": {"run": "again"}}})
    second = lab.job("benchmark", (first,))
    body = lab.get("job", second)
    assert body is not None
    result = measurement_result(body)["benchmark"]
    error = {"reason": "ErrorRateHigh", "message": "half of the requests failed"}
    message = {"benchmark": {**result, "message": error["message"]}, "error": error}
    lab.finish(second, message, exit_code=2)
    failed = lab.wait("pair", "BenchmarkCompleted", "False", "ErrorRateHigh")
    assert "half of the requests failed" in failed["message"]
    assert status(lab)["benchmark"]["state"] == "Failed"
    lab.wait("pair")
    until(lambda: lab.jobs("benchmark") == [second], "no Job of the run before")


def test_refused_verification_job_is_reported_and_the_service_stays_ready(lab: Lab) -> None:
    serve(lab, "pair")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    lab.kubectl("create", "-f", "-", stdin=json.dumps(quota))
    until(
        lambda: (
            "count/jobs.batch"
            in ((lab.get("quota", "full") or {}).get("status") or {}).get("hard", {})
        ),
        "a quota in force",
    )
    lab.patch("specm", "pair", {"spec": {"verification": {"run": "again"}}})
    refused = lab.wait("pair", "SpeculationActive", "Unknown", "Rejected")
    assert "quota" in refused["message"]
    assert lab.condition("pair")["status"] == "True"
    assert shown(lab) == {"ACCEPT": "<none>", "SPEED": "<none>"}


def test_commands_measure_again_suspend_and_resume(lab: Lab) -> None:
    serve(lab, "pair")
    first = lab.job("verify")
    for arguments in (["rerun"], ["suspend"], ["resume"]):
        result = specdec(lab, *arguments, "pair")
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        if arguments == ["rerun"]:
            assert lab.job("verify", (first,)) != first
        elif arguments == ["suspend"]:
            lab.wait("pair", "Ready", "False", "Suspended")
    until(lambda: lab.condition("pair")["reason"] != "Suspended", "a resumed resource")
