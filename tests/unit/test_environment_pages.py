"""The pages about air-gapped clusters and about OpenShift agree with the code."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec.tools.dry_run.plan import make
from specdec.tools.dry_run.resource import read
from support.golden_cases import SAMPLES
from support.simulated_cluster import IMAGES

ROOT = Path(__file__).parents[2]
MIRROR = "registry.example.com/"
# Volume types that our pods use and that OpenShift's constraint restricted-v2 allows.
VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
IDS = ("runAsUser", "runAsGroup", "fsGroup")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def pods(sample: str, **spec: Any) -> Iterator[dict[str, Any]]:
    """Yield the pod specs of all objects of a sample whose images come from a mirror."""
    body = read(str(SAMPLES[sample]))
    body["spec"] |= spec
    body["spec"]["runtime"]["image"] = f"{MIRROR}server:26.07-trtllm-python-py3"
    images = replace(IMAGES, operator=f"{MIRROR}operator:1", reference=f"{MIRROR}reference:1")
    for obj in make(body, images).objects:
        yield from specs(obj)


def specs(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping with containers, at any depth."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for child in node.values():
            yield from specs(child)
    elif isinstance(node, list):
        for child in node:
            yield from specs(child)


@pytest.mark.parametrize("sample", SAMPLES)
def test_mirrors_replace_every_image(sample: str) -> None:
    images = {c["image"] for spec in pods(sample) for c in spec["containers"]}
    assert len(images) >= 2
    assert {image for image in images if not image.startswith(MIRROR)} == set()


@pytest.mark.parametrize("sample", SAMPLES)
def test_pods_request_what_the_restricted_constraint_allows(sample: str) -> None:
    for spec in pods(sample, pods={"user": "Assigned"}):
        assert not set(IDS) & set(spec["securityContext"])
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {kind for v in spec["volumes"] for kind in v if kind != "name"} <= VOLUMES
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True


def test_sample_job_has_the_ids_that_the_page_removes() -> None:
    documents = yaml.safe_load_all(
        (ROOT / "manifests/samples/reference-pair.yaml").read_text("utf-8")
    )
    (job,) = [document for document in documents if document["kind"] == "Job"]
    assert set(IDS) <= set(job["spec"]["template"]["spec"]["securityContext"])
    rules = yaml.safe_load_all((ROOT / "manifests/install/rbac.yaml").read_text("utf-8"))
    listed = [rule for document in rules for rule in document.get("rules", [])]
    assert any(
        rule["resources"] == ["speculativemodels/finalizers"] and rule["verbs"] == ["update"]
        for rule in listed
    )
