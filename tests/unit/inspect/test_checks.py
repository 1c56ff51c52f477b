"""`specdec check`: each fact about a cluster gets a verdict with a resolution."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec import __version__
from specdec.tools.dry_run.admission.definition import is_carried
from specdec.tools.inspect.checks import LEAST_KUBERNETES, judge
from specdec.tools.inspect.checks.facts import RIGHTS, Check, Facts, Unread
from support.documents import definition
from support.fake_api import Json

ROOT = Path(__file__).parents[3]
UNREAD = Unread('the API server rejects it: User "me" cannot list it')
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
LOCAL = "localhost/specdec/operator:dev"


def node(
    name: str = "node-1", gpus: int = 0, images: tuple[str, ...] = (), **changes: Any
) -> Json:
    return {
        "metadata": {"name": name, "labels": changes.pop("labels", {})},
        "spec": changes,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
            "images": [{"names": [image]} for image in images],
        },
    }


def operator(image: str = "example.com/operator:1", *arguments: str, **changes: Any) -> Json:
    variables = [
        {"name": "SPECDEC_POD_NAME", "valueFrom": {}},
        *({"name": key, "value": value} for key, value in changes.pop("variables", {}).items()),
    ]
    container = {"name": "operator", "image": image, "env": variables, "args": list(arguments)}
    return {
        "metadata": {
            "name": "specdec-operator",
            "namespace": "specdec-system",
            "labels": {"app.kubernetes.io/version": __version__},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"availableReplicas": 1, **changes},
    }


def storage_class(name: str, default: str = "false") -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": default}
    return {"metadata": {"name": name, "annotations": annotations}}


GOOD = Facts(
    namespace="lab",
    server="v1.34.1",
    definition={"kind": "CustomResourceDefinition"},
    served=True,
    same_schema=True,
    operators=[operator()],
    missing_rights=(),
    nodes=[node(gpus=8, labels=H100), node("node-2", gpus=8, labels=H100)],
    storage_classes=[storage_class("fast"), storage_class("standard", "true")],
)


def check_of(name: str, facts: Facts) -> Check:
    return next(item for item in judge(facts) if item.name == name)


def test_cluster_in_order_has_no_fix() -> None:
    checks = judge(GOOD)
    assert [item.name for item in checks] == [
        *("API server", "CRD", "operator", "images", "rights", "GPUs", "storage")
    ]
    assert {(item.result, item.fix) for item in checks} == {("ok", "")}
    assert "16 x NVIDIA-H100" in check_of("GPUs", GOOD).message
    assert "standard is the default" in check_of("storage", GOOD).message


GET, PROXY = next(iter(RIGHTS)), next(r for r in RIGHTS if r.resource == "pods/proxy")
CASES: list[tuple[str, Json, str, str]] = [
    ("API server", {"server": "v1.28.15-gke.100"}, "problem", "Kubernetes v1.28.15-gke.100 lacks"),
    ("API server", {"server": "v1.30.0+k3s1"}, "ok", "v1.30.0+k3s1"),
    ("API server", {"server": "v2.0.0"}, "ok", "v2.0.0"),
    ("API server", {"server": "master"}, "warning", "'master' is unknown"),
    ("CRD", {"definition": None, "served": False}, "problem", "does not serve the kind"),
    ("CRD", {"served": False}, "problem", "does not serve the kind"),
    ("CRD", {"definition": UNREAD, "same_schema": False}, "warning", "was not compared: the API"),
    ("CRD", {"definition": UNREAD, "served": False}, "problem", "does not serve the kind"),
    ("CRD", {"same_schema": False}, "problem", "its schema differs from that of specdec"),
    ("operator", {"operators": []}, "problem", "no Deployment has the label"),
    ("operator", {"operators": UNREAD}, "warning", "cannot list"),
    (
        "operator",
        {"operators": [operator(availableReplicas=0)]},
        "problem",
        "specdec-system/specdec-operator has no available pod",
    ),
    (
        "operator",
        {"operators": [operator("a/b", "--namespace=other")]},
        "problem",
        "does not watch namespace lab",
    ),
    ("operator", {"operators": [operator("a/b", "--namespace=lab")]}, "ok", "is available"),
    (
        "operator",
        {"operators": [operator("a/b", "--namespace=other"), operator()]},
        "ok",
        "is available",
    ),
    ("images", {"operators": UNREAD}, "warning", "its images are unknown"),
    ("images", {"operators": [operator(LOCAL)]}, "problem", "node node-1, node-2 has not loaded"),
    (
        "images",
        {"operators": [operator(LOCAL)], "nodes": [node(images=(LOCAL,))]},
        "problem",
        "node node-1 has not loaded",
    ),
    (
        "images",
        {
            "operators": [operator(LOCAL)],
            "nodes": [
                node(images=(LOCAL, LOCAL.replace("operator", "reference"))),
                node("master", taints=[{"key": "node-role.kubernetes.io/control-plane"}]),
                node("old", unschedulable=True),
            ],
        },
        "ok",
        "every node has loaded localhost/specdec/operator:dev, localhost/specdec/reference:dev",
    ),
    (
        "images",
        {
            "operators": [
                operator(variables={"SPECDEC_REFERENCE_IMAGE": "localhost/specdec/other:dev"})
            ],
            "nodes": [node()],
        },
        "problem",
        "localhost/specdec/other:dev: no registry has these images",
    ),
    (
        "images",
        {
            "operators": [operator("127.0.0.1:5000/operator:dev")],
            "nodes": [node(images=tuple(f"example.com/{n}" for n in range(50)))],
        },
        "warning",
        "does not list all its images",
    ),
    (
        "images",
        {"operators": [operator(LOCAL)], "nodes": UNREAD},
        "warning",
        "only nodes on which these images were loaded",
    ),
    ("rights", {"missing_rights": (GET,)}, "problem", "get speculativemodels.specdec.dev"),
    ("rights", {"missing_rights": (PROXY,)}, "warning", "may not get pods/proxy (for top)"),
    ("GPUs", {"nodes": [node()]}, "warning", "only the backend Reference runs"),
    ("GPUs", {"nodes": UNREAD}, "warning", "cannot list"),
    ("GPUs", {"nodes": [node(gpus=1, unschedulable=True)]}, "warning", "no schedulable node"),
    ("GPUs", {"nodes": [node(gpus=1)]}, "warning", "has no label nvidia.com/gpu.product"),
    ("storage", {"storage_classes": []}, "warning", "there is no storage class"),
    ("storage", {"storage_classes": UNREAD}, "warning", "cannot list"),
    (
        "storage",
        {"storage_classes": [storage_class("fast")]},
        "warning",
        "no storage class is the default; there are fast",
    ),
]


@pytest.mark.parametrize(("name", "changes", "result", "message"), CASES)
def test_facts_have_a_verdict(name: str, changes: Json, result: str, message: str) -> None:
    verdict = check_of(name, replace(GOOD, **changes))
    assert verdict.result == result
    assert message in verdict.message
    assert bool(verdict.fix) == (result != "ok")


def test_other_version_of_the_operator_is_a_warning() -> None:
    older = operator()
    older["metadata"]["labels"] = {"app.kubernetes.io/version": "0.0.1"}
    verdict = check_of("operator", replace(GOOD, operators=[older]))
    assert (verdict.result, verdict.fix) == ("warning", "install specdec 0.0.1")


@pytest.mark.parametrize("chart", ["specdec-operator", "specdec-model"])
def test_least_version_is_that_of_the_charts(chart: str) -> None:
    text = (ROOT / "charts" / chart / "Chart.yaml").read_text("utf-8")
    least = ".".join(map(str, LEAST_KUBERNETES))
    assert yaml.safe_load(text)["kubeVersion"] == f">={least}.0-0"


def test_schema_of_the_definition_is_compared_without_descriptions() -> None:
    crd = json.loads(json.dumps(definition(), sort_keys=True))
    assert is_carried(crd)
    [version] = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["description"] = "another text"
    assert is_carried(crd)
    del schema["properties"]["spec"]["properties"]["suspend"]
    assert not is_carried(crd)
    assert not is_carried({"spec": {"versions": [version, version]}})
