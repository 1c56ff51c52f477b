"""Properties of objects; the golden files have their full text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import fetch, pod, repository, storage
from specdec.desired.pod import Container, Placement, Volume
from support.simulated_cluster import World, fetched, resource, settled

SHARED = Volume("models", "uid", single_node=False)
LOCAL = Volume("models", "uid", single_node=True)
CONTAINER = Container("c", "image", "IfNotPresent", ["run"])


def model(**spec: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(**spec))


@given(st.lists(st.text(), min_size=1))
def test_the_kubelet_gives_back_every_argument_as_it_was(arguments: list[str]) -> None:
    container = Container("c", "image", "Always", arguments)
    command = pod.template(container, SHARED, {})["spec"]["containers"][0]["command"]
    assert [expand(argument, {"HOME": "leak"}) for argument in command] == arguments


def expand(text: str, env: dict[str, str]) -> str:
    """Expand a text as a kubelet does: $$ is $, and $(NAME) is the value of a known variable."""
    out, i = "", 0
    while i < len(text):
        if text.startswith("$$", i):
            out, i = out + "$", i + 2
        elif text.startswith("$(", i) and text.find(")", i) > 0:
            end = text.index(")", i)
            name = text[i + 2 : end]
            out, i = out + env.get(name, f"$({name})"), end + 1
        else:
            out, i = out + text[i], i + 1
    return out


@given(st.text(), st.text(), st.text())
def test_hostile_sources_reach_the_job_as_they_are(path: str, repo: str, revision: str) -> None:
    hub = {"repo": repo, "revision": revision or "main"}
    cr = resource()
    cr["spec"]["target"]["source"] = {"huggingFace": hub}
    draft = cr["spec"]["speculation"]["draftTarget"]["draft"]
    draft["source"] = {"pvc": {"claimName": "c", "path": path}}
    job = fetch.job(SpeculativeModel.parse(cr), SHARED, "image")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:4] == ["python", "-m", "specdec.pipeline.validation.fetch_job", "--plan"]
    plan = json.loads(expand(command[4], {}))
    assert plan["models"]["draft"]["pvc"]["path"] == path
    assert plan["models"]["target"]["huggingFace"].get("repo", "") == repo


def test_a_single_node_volume_keeps_its_pods_together() -> None:
    mine = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"mine": 1}]}}
    spec = pod.template(CONTAINER, LOCAL, {}, Placement(affinity=mine))["spec"]
    terms = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0] == {"mine": 1}
    assert terms[1]["labelSelector"]["matchLabels"] == {names.CLAIM: "models"}
    assert mine["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == [{"mine": 1}]
    assert "affinity" not in pod.template(CONTAINER, SHARED, {})["spec"]


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany"])
def test_every_pod_of_a_claim_carries_its_label(mode: str) -> None:
    world = settled(resource(storage={"size": "1Gi", "accessMode": mode}))
    templates = [o["spec"]["template"] for o in world.ever_applied.values() if is_workload(o)]
    on_claim = [t for t in templates if "models" in {v["name"] for v in t["spec"]["volumes"]}]
    assert (len(templates), len(on_claim)) == (6, 5), "the verification needs no volume"
    for template in on_claim:
        assert template["metadata"]["labels"][names.CLAIM] == "pair-models"
        assert ("affinity" in template["spec"]) == (mode == "ReadWriteOnce")


def is_workload(obj: dict[str, Any]) -> bool:
    return obj["kind"] in ("Job", "Deployment")


@pytest.mark.parametrize("user", ["Fixed", "Assigned"])
def test_all_pods_have_the_account_and_the_user_of_the_resource(user: str) -> None:
    world = settled(resource(pods={"serviceAccountName": "models", "user": user}))
    templates = [o["spec"]["template"] for o in world.ever_applied.values() if is_workload(o)]
    assert len(templates) == 6
    for template in templates:
        spec = template["spec"]
        assert spec["serviceAccountName"] == "models"
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        ids = [spec["securityContext"].get(k) for k in ("runAsUser", "runAsGroup", "fsGroup")]
        assert ids == [10001 if user == "Fixed" else None] * 3


JOBS: dict[str, Any] = {
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "batch",
    "fetch": {"resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": 1}}},
    "measurement": {"resources": {"requests": {"memory": "2Gi"}}},
}


def own_jobs(**spec: Any) -> dict[str, Any]:
    """Return the pod specs of all Jobs without GPUs, by component."""
    world = World(resource(**spec))
    world.settle(lambda component: fetched() if component == "fetch" else {})
    return {
        body["metadata"]["labels"][names.COMPONENT]: body["spec"]["template"]["spec"]
        for (kind, _), body in world.ever_applied.items()
        if kind == "Job" and body["metadata"]["labels"][names.COMPONENT] != "engine"
    }


def test_jobs_without_gpus_run_where_the_resource_allows() -> None:
    placed, default = own_jobs(jobs=JOBS), own_jobs()
    assert set(placed) == set(default) >= {"fetch", "publish", "verify"}
    for component, pod_ in placed.items():
        for field in ("nodeSelector", "tolerations", "priorityClassName"):
            assert pod_[field] == JOBS[field], component
            assert field not in default[component]
        # A volume on one node would add its own affinity terms.
        assert pod_["affinity"]["nodeAffinity"] == JOBS["affinity"]["nodeAffinity"]


def test_resources_of_a_job_replace_the_operator_s_by_name() -> None:
    placed, default = own_jobs(jobs=JOBS), own_jobs()

    def resources(pods: dict[str, Any], component: str) -> Any:
        return pods[component]["containers"][0]["resources"]

    ours = resources(default, "fetch")
    assert resources(placed, "fetch") == {
        "requests": {**ours["requests"], "cpu": 1},
        "limits": {"memory": "4Gi"},
    }
    assert resources(placed, "verify")["requests"]["memory"] == "2Gi"
    assert resources(placed, "publish") == resources(default, "publish")


def test_builds_have_a_runtime_and_a_priority() -> None:
    classes = {"runtimeClassName": "nvidia", "priorityClassName": "batch"}
    world = World(resource(build=classes))
    world.settle(lambda component: fetched() if component == "fetch" else {})
    builds = [
        body["spec"]["template"]["spec"]
        for (kind, name), body in world.ever_applied.items()
        if kind == "Job" and name.startswith("engine-")
    ]
    assert builds
    assert all(build.items() >= classes.items() for build in builds)


def test_another_account_fetches_again() -> None:
    """A changed service account gives a new fetch Job, so a failed fetch runs again with it."""
    jobs = set()
    for pods in ({}, {"serviceAccountName": "models"}):
        world = settled(resource(pods=pods))
        jobs |= {name for kind, name in world.ever_applied if kind == "Job" and "fetch" in name}
    assert len(jobs) == 2


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
def test_a_claim_of_any_length_has_a_label(claim: str) -> None:
    label = names.claim_label(claim)
    assert 1 <= len(label) <= 63


def test_gpus_are_a_limit_beside_the_user_s() -> None:
    limits = {"limits": {"memory": "1Gi"}}
    assert pod.with_gpus(limits, 2) == {"limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}
    assert pod.with_gpus(limits, 0) == limits


def test_an_own_claim_is_what_was_asked_for() -> None:
    spec = {"size": "5Gi", "storageClassName": "", "accessMode": "ReadWriteMany"}
    claim = storage.claim(model(storage=spec))
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "5Gi"}},
        "storageClassName": "",
    }


def test_distinct_paths_have_distinct_keys() -> None:
    files = {"a/config.pbtxt": "1", "b/config.pbtxt": "2", "a-config.pbtxt": "3"}
    data = repository.config_map(model(), "f" * 64, files, [])["data"]
    assert len(data) == 4
    assert all(len(key) < 253 for key in data)


def test_a_repository_too_big_for_a_config_map_is_refused() -> None:
    with pytest.raises(ValueError, match="a ConfigMap holds") as refused:
        repository.config_map(model(), "f" * 64, {"big": "x" * (1 << 20)}, [])
    assert str(refused.value).endswith(
        " bytes and a ConfigMap holds 1032192: shorten the method's choices or "
        "spec.runtime.parameters"
    )


def test_the_repository_s_hash_follows_files_engines_and_volume() -> None:
    revisions = {
        repository.content_hash({"a": "1"}, [], SHARED),
        repository.content_hash({"a": "2"}, [], SHARED),
        repository.content_hash({"a": "1"}, [{"key": "k"}], SHARED),
        repository.content_hash({"a": "1"}, [], Volume("models", "other", single_node=False)),
    }
    assert len(revisions) == 4


def test_job_names_fit_into_a_label() -> None:
    cr = resource()
    cr["metadata"]["name"] = "m" * 40
    world = settled(cr)
    assert all(len(name) <= 63 for name in world.jobs)


def test_what_is_applied_is_plain_json() -> None:
    world = World(resource())
    world.settle(lambda component: fetched() if component == "fetch" else {})
    for obj in world.ever_applied.values():
        assert json.loads(json.dumps(obj)) == obj
        assert obj["metadata"]["ownerReferences"][0]["uid"] == "uid-pair"
        assert obj["metadata"]["namespace"] == "demo"
