"""A resource on a real API server becomes Ready, idle, repaired, suspended and deleted."""

import json

import pytest

from controlplane.operating import Lab, until
from controlplane.pipeline import at_rest, claim, resource, serve, unwritten
from specdec.api import names
from specdec.desired import programs

pytestmark = pytest.mark.controlplane

CHILDREN = ("deployment", "service", "job", "configmap", "pvc", "pod")


def ours(lab: Lab) -> set[str]:
    """Return kind and name of every object in the namespace that the operator created."""
    items = lab.all(",".join(CHILDREN), f"{names.MANAGED_BY}={names.MANAGER}")
    return {f"{item['kind']} {item['metadata']['name']}" for item in items}


def test_resource_becomes_ready_and_is_not_written_again(lab: Lab) -> None:
    body = serve(lab, "pair")
    status = body["status"]
    assert [c["type"] for c in status["conditions"]][-1] == "Ready"
    other = {c["type"]: c["reason"] for c in status["conditions"] if c["status"] != "True"}
    assert other == {"BenchmarkCompleted": "NotRun"}
    assert status["phase"] == "Serving"
    assert status["observedGeneration"] == body["metadata"]["generation"]
    scale = json.loads(lab.kubectl("get", "specm", "pair", "--subresource=scale", "-o", "json"))
    assert scale["status"]["replicas"] == 1

    unwritten(lab, "pair")

    events = lab.all("events.events.k8s.io")
    reported = [e for e in events if e.get("reportingController") == "specdec.dev/operator"]
    assert [e["action"] for e in reported].count("Ready") == 1
    assert {"Fetched", "Built", "Published", "PodsReady", "Serving"} <= {
        e["reason"] for e in reported
    }
    assert "specm" not in ours(lab)
    for item in lab.all(",".join(CHILDREN[:5]), names.MODEL):
        assert item["metadata"]["ownerReferences"][0]["name"] == "pair"
        assert not item["metadata"].get("finalizers", []) or item["kind"] != "Deployment"
    assert "finalizers" not in body["metadata"]
    assert lab.operator.resident_mib() < 120


def test_deleted_or_changed_children_are_restored(lab: Lab) -> None:
    serve(lab, "pair")
    at_rest(lab)
    lab.kubectl("delete", "service,deployment", "pair")
    until(lambda: lab.get("service", "pair") and lab.get("deployment", "pair"), "both again")
    lab.wait("pair")

    at_rest(lab)
    lab.patch(
        "service", "pair", {"spec": {"selector": {"app": "mine"}}, "metadata": {"labels": {}}}
    )
    lab.patch("deployment", "pair", {"spec": {"replicas": 3}})

    def repaired() -> bool:
        service, deployment = lab.get("service", "pair"), lab.get("deployment", "pair")
        assert service is not None
        assert deployment is not None
        selector = service["spec"]["selector"]
        return deployment["spec"]["replicas"] == 1 and names.INSTANCE in selector

    until(repaired, "the desired selector of the Service and replicas of the Deployment")


def test_changed_or_deleted_programs_of_pods_are_restored(lab: Lab) -> None:
    serve(lab, "pair")
    at_rest(lab)
    (before,) = lab.all("configmap", f"{names.COMPONENT}={programs.COMPONENT}")
    name = before["metadata"]["name"]

    def restored() -> bool:
        live = lab.get("configmap", name)
        return live is not None and live["data"] == before["data"]

    lab.patch("configmap", name, {"data": {"alive.py": "raise SystemExit"}})
    until(restored, "the program of the liveness probe")
    lab.kubectl("delete", "configmap", name)
    until(restored, "the ConfigMap")
    lab.wait("pair")


def test_suspend_deletes_the_pods_and_keeps_the_artifacts(lab: Lab) -> None:
    serve(lab, "pair")
    jobs = [*lab.jobs("fetch"), *lab.jobs("engine"), *lab.jobs("publish")]
    lab.patch("specm", "pair", {"spec": {"suspend": True}})
    lab.wait("pair", "Ready", "False", "Suspended")
    until(lambda: not lab.all("pods", f"{names.COMPONENT}=server"), "no serving pod")
    assert [*lab.jobs("fetch"), *lab.jobs("engine"), *lab.jobs("publish")] == jobs
    assert lab.get("pvc", "pair-models") is not None

    lab.patch("specm", "pair", {"spec": {"suspend": False}})
    lab.wait("pair")
    assert lab.jobs("engine") == [j for j in jobs if j.startswith("engine-")]


def test_suspend_ends_running_jobs(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair"))
    lab.job("fetch")
    lab.patch("specm", "pair", {"spec": {"suspend": True}})
    until(lambda: not lab.jobs("fetch"), "no fetch Job")
    lab.wait("pair", "Ready", "False", "Suspended")


def test_deletion_removes_every_child_and_keeps_the_source_claim(lab: Lab) -> None:
    serve(lab, "pair")
    assert len(ours(lab)) >= 8
    lab.kubectl("delete", "specm", "pair", "--wait=true")
    until(lambda: not ours(lab), lambda: f"nothing left of {ours(lab)}")
    source = lab.get("pvc", "pair")
    assert source is not None
    assert "deletionTimestamp" not in source["metadata"]


def test_existing_claim_survives_the_resource(lab: Lab) -> None:
    serve(lab, "pair", storage={"existingClaim": "pair"})
    lab.kubectl("delete", "specm", "pair", "--wait=true")
    until(lambda: not ours(lab), lambda: f"nothing left of {ours(lab)}")
    assert lab.get("pvc", "pair") is not None
