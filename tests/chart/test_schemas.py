"""Validates generated objects and manifests by schemas of several Kubernetes releases.

test_render.py checks the value sets of the chart.
"""

import copy
from pathlib import Path

import pytest
from kubernetes_validate import ValidationError, validate

from chart.helm import ROOT, Object
from chart.schemas import OURS, RELEASES, require_valid
from support.documents import load_all
from support.golden_cases import CASES, generated


def read(path: Path) -> list[Object]:
    bodies = load_all(path.read_text("utf-8"))
    return [body for body in bodies if body]


@pytest.mark.parametrize("release", RELEASES)
def test_generated_objects_match_the_schemas(release: str) -> None:
    bodies = [
        body
        # All cases for this project's release. A few cases have the fields that differ in others.
        for case in (CASES if release == OURS else CASES[:3])
        for body in generated(case).objects
    ]
    passed = require_valid(bodies, release)
    assert passed >= {"Job", "Deployment", "Service", "ConfigMap", "PersistentVolumeClaim"}


def test_manifests_and_definition_match_the_schemas() -> None:
    folders = (ROOT / "manifests", ROOT / "crds")
    files = [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]
    # Another test checks krew's manifest.
    others = {"kustomization.yaml", "litellm.yaml", "specdec.yaml"}
    bodies = [body for path in files if path.name not in others for body in read(path)]
    passed = require_valid(bodies)
    assert passed >= {"CustomResourceDefinition", "Deployment", "Job", "ClusterRoleBinding"}


def test_unknown_field_is_refused() -> None:
    bodies = generated(CASES[0]).objects
    (wrong,) = (copy.deepcopy(body) for body in bodies if body["kind"] == "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(ValidationError, match="volumeMount"):
        validate(wrong, OURS, strict=True)
