"""Disruption budgets, rollouts, placement, and the labels of a resource's children."""

import copy
from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.controller.children import labels_and_owners
from specdec.desired import disruption, engine, pod, serving
from specdec.desired.engine import Needs
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.pipeline import validation
from specdec.triton.layout import PLAIN
from support.golden_cases import resource as case
from support.simulated_cluster import IMAGES, resource, settled

VOLUME = Volume("models", "uid", single_node=False)
TAG = {"labels": {"team": "search"}, "annotations": {"note": "kept"}}
CLAIM = {"name": "gpus", "resourceClaimTemplateName": "two"}


def model(cr: dict[str, Any] | None = None, **spec: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(**spec) if cr is None else cr)


def on_gpus(name: str = "tensorrt-baseline", **served: Any) -> SpeculativeModel:
    """Return a sample of the TensorRT backend with other serving options."""
    cr = copy.deepcopy(case(name))
    cr["spec"].setdefault("serving", {}).update(served)
    return SpeculativeModel.parse(cr)


def budgets(resource_: SpeculativeModel) -> dict[str, Any]:
    return {body["metadata"]["name"]: body["spec"] for body in disruption.objects(resource_)}


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"maxUnavailable": 2}, {"maxUnavailable": 2}),
        ({"maxUnavailable": 0}, {"maxUnavailable": 0}),
        ({"minAvailable": 2}, {"minAvailable": 2}),
    ],
)
def test_the_budget_has_the_limit_of_the_spec(
    options: dict[str, int], bounds: dict[str, int]
) -> None:
    made = budgets(model(serving={"replicas": 3, "disruption": options}))
    assert {k: v for k, v in made["pair"].items() if k.endswith("vailable")} == bounds
    assert made["pair"]["selector"] == {"matchLabels": names.selector(model())}


def test_one_replica_has_no_budget_and_two_servers_have_one_each() -> None:
    assert budgets(model()) == {}
    assert budgets(model(serving={"replicas": 3, "disruption": {"mode": "Disabled"}})) == {}
    assert budgets(model(serving={"replicas": 3}, suspend=True)) == {}
    name = "tensorrt-two-servers"
    both = budgets(on_gpus(name, replicas=2))
    assert set(both) == {name, f"{name}-draft"}
    assert both[f"{name}-draft"]["selector"]["matchLabels"][names.COMPONENT] == "draft-server"


@pytest.mark.parametrize(
    ("options", "least"),
    # Three groups have two pods each; a group with an evicted pod does not serve.
    [({}, 5), ({"maxUnavailable": 2}, 4), ({"minAvailable": 2}, 5), ({"minAvailable": 5}, 6)],
)
def test_the_budget_of_groups_counts_their_pods(options: dict[str, int], least: int) -> None:
    name = "tensorrt-405b-two-nodes"
    (budget,) = budgets(on_gpus(name, replicas=3, disruption=options)).values()
    assert budget["minAvailable"] == least
    assert "maxUnavailable" not in budget
    members = budget["selector"]["matchExpressions"][0]["values"]
    assert members == ["server", "worker"]


@pytest.mark.parametrize(
    ("options", "surge", "unavailable"),
    [
        ({}, (1, 0), (0, 1)),
        ({"maxSurge": 2}, (2, 0), (2, 0)),
        ({"maxSurge": 0}, (0, 1), (0, 1)),
        ({"maxUnavailable": 2}, (0, 2), (0, 2)),
        ({"maxUnavailable": 0}, (1, 0), (1, 0)),
        ({"maxSurge": 3, "maxUnavailable": 2}, (3, 2), (3, 2)),
    ],
)
def test_an_old_pod_stops_first_only_if_pods_use_gpus(
    options: dict[str, int], surge: tuple[int, int], unavailable: tuple[int, int]
) -> None:
    for resource_, expected in (
        (model(serving={"rollout": options}), surge),
        (on_gpus(rollout=options), unavailable),
    ):
        counts = serving.strategy(resource_)["rollingUpdate"]
        assert (counts["maxSurge"], counts["maxUnavailable"]) == expected


def test_recreate_ends_all_pods_first() -> None:
    strategy = serving.strategy(model(serving={"rollout": {"strategy": "Recreate"}}))
    assert strategy == {"type": "Recreate"}


def test_pods_spread_by_their_own_server_unless_the_spec_sets_others() -> None:
    own = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    other = {**own, "labelSelector": {"matchLabels": {"tier": "chat"}}}
    resource_ = model(serving={"topologySpreadConstraints": [own, other]})
    body = serving.deployment(resource_, Revision("r" * 64, "image"), VOLUME, 1)
    first, second = body["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selected = first.pop("labelSelector")["matchLabels"]
    labels = body["spec"]["template"]["metadata"]["labels"]
    assert first == own
    assert selected.items() <= labels.items()
    assert second == other


def test_claims_stand_in_place_of_counted_gpus_and_keep_the_product() -> None:
    resource_ = on_gpus(resourceClaims=[{**CLAIM, "request": "both"}])
    revision = Revision("r" * 64, "image", gpus=4, product="NVIDIA-L4")
    for served in (revision, Revision("r" * 64, "image", gpus=0, product="NVIDIA-L4")):
        spec = serving.deployment(resource_, served, VOLUME, 1)["spec"]["template"]["spec"]
        assert spec["resourceClaims"] == [CLAIM]
        resources = spec["containers"][0]["resources"]
        assert resources["claims"] == [{"name": "gpus", "request": "both"}]
        assert pod.GPU not in resources.get("limits", {})
        assert spec["nodeSelector"][names.GPU_PRODUCT] == "NVIDIA-L4"


def test_a_build_may_claim_its_gpus_too() -> None:
    plan = {"key": "k" * 64, "role": "target"}
    cr = case("tensorrt-baseline")
    resource_ = model({**cr, "spec": {**cr["spec"], "build": {"resourceClaims": [CLAIM]}}})
    spec = engine.job(resource_, plan, VOLUME, "image", Needs(4), "operator")["spec"]["template"][
        "spec"
    ]
    assert spec["resourceClaims"] == [CLAIM]
    assert "limits" not in spec["containers"][0]["resources"]


@pytest.mark.parametrize("part", ["serving", "build"])
def test_gpus_are_not_claimed_and_counted_at_once(part: str) -> None:
    cr = copy.deepcopy(case("tensorrt-baseline"))
    counted = {"limits": {"nvidia.com/gpu": 4}}
    cr["spec"][part] = {"resources": counted, "resourceClaims": [CLAIM]}
    problem = validation.first_problem(model(cr), IMAGES)
    assert problem is not None
    assert problem.reason == "InvalidSpec"
    assert f"remove nvidia.com/gpu from spec.{part}.resources" in problem.message


KINDS = ("jobs", "jobPods", "servers", "serverPods", "services")


def tagged(*kinds: str) -> set[tuple[str, str]]:
    """Return kind and part (object or pod) of everything with the tag."""
    world = settled(resource(metadata=dict.fromkeys(kinds, TAG)))
    parts = {
        (kind, part): meta
        for (kind, _), body in world.ever_applied.items()
        for part, meta in (
            ("object", body["metadata"]),
            ("pod", body.get("spec", {}).get("template", {}).get("metadata", {})),
        )
    }
    tagged = set()
    for key, meta in parts.items():
        label, note = meta.get("labels", {}).get("team"), meta.get("annotations", {}).get("note")
        assert (label is None) == (note is None)
        if label:
            tagged.add(key)
    return tagged


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("jobs", ("Job", "object")),
        ("jobPods", ("Job", "pod")),
        ("servers", ("Deployment", "object")),
        ("serverPods", ("Deployment", "pod")),
        ("services", ("Service", "object")),
    ],
)
def test_tags_reach_children_of_their_kind_alone(kind: str, where: tuple[str, str]) -> None:
    assert tagged(kind) == {where}


def test_every_job_is_tagged_and_joining_one_keeps_its_tags() -> None:
    world = settled(resource(metadata={"jobs": TAG}))
    labels = [job["metadata"]["labels"] for job in world.jobs.values()]
    assert len(labels) == 5
    assert all(item["team"] == "search" for item in labels)
    for job in world.jobs.values():
        kept = labels_and_owners(job)["metadata"]
        assert "team" not in kept["labels"]
        assert "annotations" not in kept
        assert names.MANAGED_BY in kept["labels"]


def test_no_tag_replaces_a_label_of_the_operator() -> None:
    theirs = {"labels": {names.COMPONENT: "x", names.MODEL: "x", names.REPOSITORY: "x"}}
    resource_ = model(metadata=dict.fromkeys(KINDS, theirs))
    body = serving.deployment(resource_, Revision("r" * 64, "image", launch=PLAIN), VOLUME, 1)
    for meta in (body["metadata"], body["spec"]["template"]["metadata"]):
        assert meta["labels"][names.COMPONENT] == "server"
        assert meta["labels"][names.MODEL] == "pair"
