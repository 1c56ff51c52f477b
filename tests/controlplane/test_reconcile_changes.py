"""Changed specs, shared engines and a killed operator: no engine is built twice or lost."""

import pytest

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import (
    built,
    claim,
    end_publish,
    fetched,
    published,
    resource,
    serve,
    two,
)
from specdec.api import names

pytestmark = pytest.mark.controlplane

# The Deployment controller counts rollouts of the pod template in this annotation.
ROLLOUT = "deployment.kubernetes.io/revision"


def test_new_default_draft_length_builds_nothing(lab: Lab) -> None:
    before = serve(lab, "pair")
    jobs, publish = lab.jobs("engine"), lab.job("publish")
    lab.patch("specm", "pair", {"spec": {"speculation": {"draftTokens": 6}}})
    published(lab, (publish,))
    lab.wait("pair")
    after = until(
        lambda: newer(lab, before["metadata"]["generation"]), lambda: lab.describe("pair")
    )
    assert lab.jobs("engine") == jobs
    assert after["status"]["engines"] == before["status"]["engines"]
    assert after["status"]["repository"] != before["status"]["repository"]


def newer(lab: Lab, generation: int) -> Object | None:
    """Return the resource if a later generation of it is ready, else None."""
    body = lab.get("specm", "pair")
    assert body is not None
    status = body["status"]
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    seen = status["observedGeneration"] > generation and ready["status"] == "True"
    return body if seen else None


def test_longer_sequences_build_new_engines_while_the_old_revision_serves(lab: Lab) -> None:
    body = serve(lab, "pair")
    jobs, publish = lab.jobs("engine"), lab.job("publish")
    deployment = lab.get("deployment", "pair")
    assert deployment is not None
    longer(lab, 768)
    ready = lab.wait("pair", "Ready", "False", "Building")
    assert "previous revision still serves" in ready["message"]
    assert lab.condition("pair", "Available")["status"] == "True"
    fresh = [job for job in lab.jobs("engine") if job not in jobs]
    assert len(fresh) == 2
    meanwhile = lab.get("deployment", "pair")
    assert meanwhile is not None
    assert meanwhile["metadata"]["generation"] == deployment["metadata"]["generation"]

    for job in fresh:
        built(lab, job)
    published(lab, (publish,))
    after = until(lambda: newer(lab, body["metadata"]["generation"]), lambda: lab.describe("pair"))
    assert after["status"]["repository"] != body["status"]["repository"]


def test_scaling_during_a_build_keeps_the_pod_template(lab: Lab) -> None:
    serve(lab, "pair")
    before = live(lab)
    longer(lab, 640)
    lab.wait("pair", "Ready", "False", "Building")
    lab.patch("specm", "pair", {"spec": {"serving": {"replicas": 2}}})
    until(lambda: live(lab)["spec"]["replicas"] == 2, lambda: lab.describe("pair"))
    scaled = live(lab)
    assert scaled["spec"]["template"] == before["spec"]["template"]

    # The spec is again that of the serving revision: applying the Deployment changes nothing.
    longer(lab, 512)
    lab.wait("pair")
    until(lambda: applied(live(lab)) != applied(scaled), lambda: lab.describe("pair"))
    after = live(lab)
    assert after["spec"] == scaled["spec"]
    rollouts = [body["metadata"]["annotations"][ROLLOUT] for body in (before, scaled, after)]
    assert rollouts == ["1"] * 3


def longer(lab: Lab, tokens: int) -> None:
    limits = {"limits": {"maxSeqLen": tokens}}
    change = {"target": limits, "speculation": {"draftTarget": {"draft": limits}}}
    lab.patch("specm", "pair", {"spec": change})


def live(lab: Lab) -> Object:
    body = lab.get("deployment", "pair")
    assert body is not None
    return body


def applied(body: Object) -> str:
    """Return the digest of the object that the operator has applied last."""
    return str(body["metadata"]["annotations"]["specdec.dev/applied"])


def test_two_resources_share_one_build_and_each_keeps_it_alive(lab: Lab) -> None:
    shared = {"existingClaim": "pair"}
    lab.apply(claim("pair"), resource("one", storage=shared), resource("two", storage=shared))
    jobs = until(lambda: two(lab.jobs("fetch")), "a fetch Job of each")
    for job in jobs:
        fetched(lab, tuple(j for j in jobs if j != job))
    engines = until(lambda: two(lab.jobs("engine")), "two engine Jobs")

    def owned() -> bool:
        jobs = [lab.get("job", name) for name in engines]
        return all(j and len(j["metadata"]["ownerReferences"]) == 2 for j in jobs)

    until(owned, lambda: f"two owners of each: {[lab.get('job', n) for n in engines]}")
    config = lab.get("configmap", engines[0])
    assert config is not None
    assert {o["name"] for o in config["metadata"]["ownerReferences"]} == {"one", "two"}
    assert lab.jobs("engine") == engines

    lab.kubectl("delete", "specm", "one", "--wait=true")
    until(lambda: not lab.all("jobs", f"{names.MODEL}=one"), "no Job of one")
    assert lab.jobs("engine") == engines
    for job in engines:
        built(lab, job)

    # A reconcile that read the first resource just before its deletion may still create a publish
    # Job for it, which the garbage collector deletes.
    def publish_job() -> str | None:
        jobs = lab.all("jobs", f"{names.MODEL}=two,{names.COMPONENT}=publish")
        return jobs[0]["metadata"]["name"] if jobs else None

    end_publish(lab, until(publish_job, "a publish Job of two"))
    lab.wait("two")
    lab.kubectl("delete", "specm", "two", "--wait=true")
    until(lambda: not lab.jobs("engine"), "no engine Job")


def test_killed_operator_resumes_after_restart(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair"))
    fetched(lab)
    lab.wait("pair", "EnginesReady", "False", "Building")
    lab.operator.kill()
    engines = lab.jobs("engine")
    try:
        for job in engines:  # the Jobs end while no operator runs
            built(lab, job)
    finally:
        lab.operator.start()
    published(lab)
    lab.wait("pair")
    assert lab.jobs("engine") == engines
    assert len(lab.jobs("fetch")) == 1


def test_results_survive_their_jobs(lab: Lab) -> None:
    serve(lab, "pair")
    lab.kubectl("delete", "jobs", "--all", "--wait=true")
    before = lab.operator.reconciles()
    lab.kubectl("annotate", "specm", "pair", "test/touched=1")
    until(lambda: lab.operator.reconciles() > before, "another reconcile")
    assert lab.condition("pair")["status"] == "True"
    assert lab.jobs("fetch") + lab.jobs("engine") == []


def test_stopped_operator_exits_promptly_without_errors(lab: Lab) -> None:
    try:
        assert lab.operator.stop() == 0
    finally:
        lab.operator.start()
    assert lab.operator.healthy() == 200
