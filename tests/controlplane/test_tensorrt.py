"""TensorRT resources from a sample to Ready: two servers, prebuilt engines, heads."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import FACTS, built, published, two, unwritten, verified
from specdec.api import names

pytestmark = pytest.mark.controlplane

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
ENGINE = {"version": "0.18.0", "maxDraftLen": 10}
HEADS = {"method": "Medusa", "numHeads": 4, "layers": 1, "hiddenSize": FACTS["hiddenSize"]}


def sample(name: str) -> Object:
    """Return a shipped sample with a volume and resources that the test's cluster has."""
    body: Object = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    body["spec"]["storage"] = {"size": "1Gi", "accessMode": "ReadWriteMany"}
    body["spec"]["target"]["parallelism"] = {"tensor": 2}
    body["spec"]["serving"] = {"drain": {"timeoutSeconds": 5}}
    return body


def fetched(lab: Lab, **facts: Any) -> Object:
    """End the fetch Job with a model for each role in `facts`; return the Job."""
    models = {
        role: {"digest": names.digest(role), "revision": "", "bytes": 1000, "facts": own}
        for role, own in facts.items()
    }
    job = lab.job("fetch")
    body = lab.get("job", job)
    assert body is not None
    lab.finish(job, {"models": models, "engines": []})
    return body


def replicas(lab: Lab, *deployments: str) -> list[int | None]:
    listed = (lab.get("deployment", name) for name in deployments)
    return [live["status"].get("readyReplicas") if live else None for live in listed]


def test_two_servers_serve_scale_suspend_and_merge_into_one(lab: Lab) -> None:
    body = sample("tensorrt-two-servers")
    target, draft = (name := body["metadata"]["name"]), f"{body['metadata']['name']}-draft"
    lab.apply(body)
    fetched(lab, target=FACTS, draft=FACTS)
    for job in until(lambda: two(lab.jobs("engine")), lambda: lab.describe(name)):
        built(lab, job)
    publish = published(lab)
    lab.wait(name)
    verified(lab)
    lab.wait(name, "OutputEquivalent")
    for server in (target, draft):
        assert lab.get("service", server) is not None
    status = (lab.get("specm", name) or {})["status"]
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)

    unwritten(lab, name)

    lab.kubectl("scale", "specm", name, "--replicas=2")
    until(lambda: replicas(lab, target, draft) == [2, 2], lambda: lab.describe(name))
    until(
        lambda: (lab.get("specm", name) or {})["status"]["readyReplicas"] == 2,
        lambda: lab.describe(name),
    )
    lab.patch("specm", name, {"spec": {"suspend": True}})
    until(lambda: replicas(lab, target, draft) == [None, None], lambda: lab.describe(name))
    until(
        lambda: lab.condition(name, "Available")["reason"] == "Suspended",
        lambda: lab.describe(name),
    )

    lab.patch("specm", name, {"spec": {"suspend": False, "serving": {"replicas": 1}}})
    lab.wait(name)
    change = {"topology": "SingleServer", "placement": "Shared"}
    lab.patch("specm", name, {"spec": {"speculation": {"draftTarget": change}}})
    published(lab, (publish,))
    until(lambda: lab.missing("deployment", draft), lambda: lab.describe(name))
    until(lambda: lab.missing("service", draft), lambda: lab.describe(name))
    lab.wait(name)
    assert len(lab.jobs("engine")) == 2, "another topology builds nothing"

    lab.kubectl("delete", "specm", name)
    until(lambda: not lab.all("deployment,service,job,configmap", names.MODEL), "nothing left")


def test_prebuilt_target_is_published_and_only_the_draft_is_built(lab: Lab) -> None:
    body = sample("tensorrt-draft-target-shared")
    name = body["metadata"]["name"]
    prebuilt = {"huggingFace": {"repo": "example/engine"}}
    body["spec"]["target"]["engine"] = {"prebuilt": prebuilt}
    lab.apply(body)
    facts = {"target": FACTS, "draft": FACTS, "target-engine": ENGINE}
    fetched(lab, **facts)
    built(lab, until(lambda: lab.job("engine"), lambda: lab.describe(name)))
    published(lab)
    lab.wait(name)
    status = (lab.get("specm", name) or {})["status"]
    assert {e["role"]: e["state"] for e in status["engines"]} == {
        "target": "Prebuilt",
        "draft": "Built",
    }
    directory = f"/models/checkpoints/{names.digest('target-engine')}"
    maps = [m for m in lab.all("configmap", f"{names.COMPONENT}=publish") if "data" in m]
    assert any(directory in text for m in maps for text in m["data"].values())


def test_build_of_the_target_reads_the_fetched_heads(lab: Lab) -> None:
    body = sample("tensorrt-medusa")
    name = body["metadata"]["name"]
    lab.apply(body)
    fetched(lab, target=FACTS, heads=HEADS)
    job = lab.job("engine")
    plan = (lab.get("configmap", job) or {})["data"]["plan.json"]
    assert f"/models/checkpoints/{names.digest('heads')}" in plan
    built(lab, job)
    published(lab)
    lab.wait(name)
