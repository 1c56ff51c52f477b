"""The condition of the failed stage reports each error that occurs outside the operator."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import (
    built,
    claim,
    fetch_result,
    fetched,
    published,
    resource,
    serve,
    two,
)
from specdec.api import names

pytestmark = pytest.mark.controlplane


def test_missing_claim_is_reported_by_name(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair", storage={"existingClaim": "nowhere"}))
    condition = lab.wait("pair", "StorageReady", "False", "ClaimNotFound")
    assert "nowhere" in condition["message"]
    assert lab.jobs("fetch") == []
    lab.apply(claim("nowhere"))
    lab.wait("pair", "StorageReady", "True")


def test_incompatible_pair_gets_no_build_job(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair"))
    models = fetch_result()["models"]
    models["draft"]["facts"] = {**models["draft"]["facts"], "tokenizer": "ffffffffffff"}
    fetched(lab, models=models)
    condition = lab.wait("pair", "Compatible", "False", "TokenizerMismatch")
    assert "different tokenizers" in condition["message"]
    lab.wait("pair", "Ready", "False", "TokenizerMismatch")
    assert lab.jobs("engine") == []


def test_failed_fetch_reports_the_reason_and_the_fix(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair"))
    job = lab.job("fetch")
    error = {"reason": "CheckpointCorrupt", "message": "target: model.safetensors is cut off"}
    lab.finish(job, {"error": error}, exit_code=2)
    condition = lab.wait("pair", "ModelsFetched", "False", "CheckpointCorrupt")
    assert "model.safetensors is cut off" in condition["message"]
    assert f"kubectl delete job {job}" in condition["message"]

    lab.kubectl("delete", "job", job)
    again = until(lambda: lab.jobs("fetch"), "another try")
    assert again == [job]
    fetched(lab)
    lab.wait("pair", "Compatible")


def limits(kind: str, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "strict"}, "spec": spec}


def test_refused_pod_of_a_job_is_reported_with_its_reason(lab: Lab) -> None:
    """Only an event of the Job has the reason; the condition was "waits for its pod" for ever."""
    quota = limits("ResourceQuota", hard={"pods": "0"})
    lab.apply(claim("pair"), quota)
    until(
        lambda: (lab.get("resourcequota", "strict") or {}).get("status", {}).get("hard"),
        "a quota in force",
    )
    lab.apply(resource("pair"))
    condition = lab.wait("pair", "ModelsFetched", "False", "PodRejected")
    job = lab.job("fetch")
    expected = f"the API server rejects the pod of Job {job}: exceeded quota: strict, "
    assert condition["message"].startswith(expected)
    lab.wait("pair", "Ready", "False", "PodRejected")

    lab.kubectl("delete", "resourcequota", "strict")
    lab.apply(limits("LimitRange", limits=[{"type": "Container", "max": {"memory": "1Mi"}}]))
    lab.kubectl("delete", "job", job)
    until(
        lambda: "maximum memory usage" in lab.condition("pair", "ModelsFetched")["message"],
        lambda: f"the reason of the limit range: {lab.describe('pair')}",
    )
    lab.kubectl("delete", "limitrange", "strict")
    lab.kubectl("delete", "job", job)
    fetched(lab)
    lab.wait("pair", "ModelsFetched", "True")


def test_refused_pod_after_a_failed_one_is_reported_with_its_reason(lab: Lab) -> None:
    """The condition stayed "tries again after a failure", while no pod could be created."""
    lab.apply(claim("pair"), resource("pair"))
    job = lab.job("fetch")
    until(lambda: lab.all("pods"), "a pod of the fetch Job")
    lab.apply(limits("ResourceQuota", hard={"pods": "0"}))
    until(
        lambda: (lab.get("resourcequota", "strict") or {}).get("status", {}).get("hard"),
        "a quota in force",
    )
    lab.finish(job, "{}", exit_code=1)
    condition = lab.wait("pair", "ModelsFetched", "False", "PodRejected")
    expected = f"the API server rejects the pod of Job {job}: exceeded quota: strict, "
    assert condition["message"].startswith(expected)


def test_refusal_of_the_api_server_is_reported_with_its_message(lab: Lab) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-jobs"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    lab.apply(claim("pair"), quota)
    until(
        lambda: (lab.get("resourcequota", "no-jobs") or {}).get("status", {}).get("hard"),
        "a quota in force",
    )
    lab.apply(resource("pair"))
    condition = lab.wait("pair", "ModelsFetched", "False", "Rejected")
    assert "exceeded quota: no-jobs" in condition["message"]
    lab.wait("pair", "Ready", "False", "Rejected")
    lab.kubectl("delete", "resourcequota", "no-jobs")
    lab.kubectl("annotate", "specm", "pair", "test/touched=1")
    lab.job("fetch")


def test_object_of_another_owner_is_never_changed(lab: Lab) -> None:
    container = {"name": "web", "image": "web"}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pair"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
        },
    }
    lab.apply(theirs, claim("pair"), resource("pair"))
    fetched(lab)
    for job in until(lambda: two(lab.jobs("engine")), "two engine Jobs"):
        built(lab, job)
    published(lab)
    condition = lab.wait("pair", "Available", "False", "Rejected")
    assert (
        "Deployment pair exists and was not made for SpeculativeModel pair" in condition["message"]
    )
    live = lab.get("deployment", "pair")
    assert live is not None
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "web"
    assert "ownerReferences" not in live["metadata"]

    lab.kubectl("delete", "deployment", "pair")
    lab.kubectl("annotate", "specm", "pair", "test/touched=1")
    lab.wait("pair")


def test_probe_and_metrics_respond(lab: Lab) -> None:
    assert lab.operator.healthy() == 200
    assert lab.operator.metric("specdec_queue_depth") >= 0
    assert lab.operator.metric("specdec_reconcile_duration_seconds_count") > 0
    assert lab.operator.metric("specdec_reconcile_errors_total", kind="bug") == 0


def crash(lab: Lab) -> str:
    """Report the serving pod as crashed while it loads, as without an engine; return its name."""
    (pod,) = lab.all("pods", f"{names.COMPONENT}=server")
    status = pod["status"]
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    end = {"exitCode": 1, "reason": "Error", "startedAt": moment, "finishedAt": moment}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    (container,) = status["containerStatuses"]
    dead = {"ready": False, "state": waits, "lastState": {"terminated": end}, "restartCount": 1}
    long_ago = "2026-01-01T00:00:00Z"
    unready = {"status": "False", "lastTransitionTime": long_ago}
    conditions = [
        {**item, **unready} if item["type"] in ("Ready", "ContainersReady") else item
        for item in status["conditions"]
    ]
    change = {"status": {"containerStatuses": [container | dead], "conditions": conditions}}
    name = str(pod["metadata"]["name"])
    lab.kubectl("patch", "pod", name, "--subresource=status", "-p", json.dumps(change))
    return name


def replaced(lab: Lab, name: str, before: Object) -> Object | None:
    """Return the Job that has replaced another of the same name; None while it does not exist."""
    job = lab.get("job", name)
    return job if job and job["metadata"]["uid"] != before["metadata"]["uid"] else None


def test_only_the_damaged_engine_is_rebuilt(lab: Lab) -> None:
    serve(lab, "pair")
    publish, builds = (
        lab.job("publish"),
        {name: lab.get("job", name) for name in lab.jobs("engine")},
    )
    engines = {e["role"]: e["job"] for e in (lab.get("specm", "pair") or {})["status"]["engines"]}
    before = lab.get("job", publish)
    assert before is not None
    pod = crash(lab)
    until(lambda: replaced(lab, publish, before), "another check of the volume")
    sentence = "the draft engine bbbb is damaged (rank0.engine has other content)"
    error = {"reason": "EngineDamaged", "message": sentence}
    lab.finish(publish, {"lost": ["draft"], "error": error}, exit_code=2)
    damaged = builds[engines["draft"]]
    assert damaged is not None
    until(lambda: replaced(lab, engines["draft"], damaged), "another build of the draft")
    notes = [e["note"] for e in lab.all("events.events.k8s.io") if e["reason"] == "EngineDamaged"]
    assert any(sentence in note for note in notes)
    assert lab.get("job", engines["target"]) == builds[engines["target"]]
    built(lab, engines["draft"])
    published(lab)
    lab.wait("pair", "RepositoryReady")
    lab.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    lab.wait("pair")


def test_engine_deleted_from_the_volume_is_rebuilt(lab: Lab) -> None:
    serve(lab, "pair")
    publish, builds = lab.job("publish"), lab.jobs("engine")
    before = lab.get("job", publish)
    assert before is not None
    pod = crash(lab)
    again = until(
        lambda: replaced(lab, publish, before),
        lambda: f"another check of the volume: {lab.describe('pair')}",
    )
    assert again["spec"]["template"]["spec"]["containers"][0]["command"][-1] == "--content"
    error = {"reason": "EngineMissing", "message": "the draft engine is not complete"}
    lab.finish(publish, {"error": error}, exit_code=2)
    lab.wait("pair", "EnginesReady", "False", "Building")
    assert lab.jobs("engine") == builds
    warnings = [e["reason"] for e in lab.all("events.events.k8s.io") if e["type"] == "Warning"]
    assert "EngineMissing" in warnings
    for job in builds:
        built(lab, job)
    published(lab)
    lab.wait("pair", "RepositoryReady")
    lab.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    lab.wait("pair")
