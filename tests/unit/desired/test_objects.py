"""Properties of the objects themselves; their full text is in the golden files."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import fetch, pod, repository, serving, storage
from specdec.desired.pod import Container, Placement, Volume
from specdec.triton import start
from specdec.triton.layout import Launch, Mode
from support.simulated_cluster import World, fetched, resource

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
    """The kubelet's rule: $$ is a $, $(NAME) is a variable if there is one."""
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
    assert command[:4] == ["python", "-m", "specdec.jobs.fetch", "--plan"]
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
    world = World(resource(storage={"size": "1Gi", "accessMode": mode}))
    world.settle()
    templates = [o["spec"]["template"] for o in world.ever_applied.values() if is_workload(o)]
    on_claim = [t for t in templates if "models" in {v["name"] for v in t["spec"]["volumes"]}]
    assert (len(templates), len(on_claim)) == (6, 5), "the verification needs no volume"
    for template in on_claim:
        assert template["metadata"]["labels"][names.CLAIM] == "pair-models"
        assert ("affinity" in template["spec"]) == (mode == "ReadWriteOnce")


def is_workload(obj: dict[str, Any]) -> bool:
    return obj["kind"] in ("Job", "Deployment")


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
        repository.revision({"a": "1"}, [], SHARED),
        repository.revision({"a": "2"}, [], SHARED),
        repository.revision({"a": "1"}, [{"key": "k"}], SHARED),
        repository.revision({"a": "1"}, [], Volume("models", "other", single_node=False)),
    }
    assert len(revisions) == 4


def test_job_names_fit_into_a_label() -> None:
    cr = resource()
    cr["metadata"]["name"] = "m" * 40
    world = World(cr)
    world.settle()
    assert all(len(name) <= 63 for name in world.jobs)


def test_the_startup_budget_is_covered_by_the_probe() -> None:
    revision = serving.Revision("f" * 64, "image")
    spec = {"probes": {"startupBudgetSeconds": 61}}
    deployment = serving.deployment(model(serving=spec), revision, SHARED, 1)
    probe = deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 61


def probes(revision: serving.Revision, **spec: Any) -> dict[str, Any]:
    """The probes of a server by name, each by the plan of its program."""
    made = serving.deployment(model(serving=spec), revision, SHARED, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    return {
        name: json.loads(server[f"{name}Probe"]["exec"]["command"][-1])
        for name in ("startup", "readiness")
    }


@pytest.mark.parametrize(
    ("folder", "engines"),
    [("", ["tensorrt_llm", "tensorrt_llm_draft"]), ("draft", ["tensorrt_llm"])],
)
def test_every_engine_of_a_server_is_probed(folder: str, engines: list[str]) -> None:
    for plan in probes(serving.Revision("f" * 64, "image", folder=folder)).values():
        assert plan["engines"] == engines
        assert (plan["http"], plan["metrics"]) == (8000, 8002)


@pytest.mark.parametrize(
    ("launch", "ranks"),
    [
        (Launch(), None),
        (Launch(Mode.LEADER, 4), 4),
        (Launch(Mode.ORCHESTRATOR, 3), 3),
        (Launch(Mode.ORCHESTRATOR, 18, (10, 8)), 10),
    ],
)
def test_every_rank_of_the_container_is_probed(launch: Launch, ranks: int | None) -> None:
    revision = serving.Revision("f" * 64, "image", launch=launch)
    made = serving.deployment(model(), revision, SHARED, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    plan = probes(revision)["readiness"]
    assert plan.get("ranks") == ranks
    if ranks:
        own = [a for a in server["command"] if a.startswith(plan["mark"])]
        assert len(own) == launch.world_size


@pytest.mark.parametrize(("drain", "patience"), [(0, 60), (300, 300)])
def test_engine_may_work_without_progress_for_as_long_as_a_request(
    drain: int, patience: int
) -> None:
    plan = probes(serving.Revision("f" * 64, "image"), drain={"timeoutSeconds": drain})
    assert plan["readiness"]["patience"] == patience


def test_startup_attempt_ends_before_the_next_one() -> None:
    made = serving.deployment(model(), serving.Revision("f" * 64, "image"), SHARED, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    probe = server["startupProbe"]
    plan = json.loads(probe["exec"]["command"][-1])
    assert plan["seconds"] < probe["timeoutSeconds"] <= probe["periodSeconds"]


def test_pods_live_longer_than_they_drain() -> None:
    revision = serving.Revision("f" * 64, "image")
    spec = {"drain": {"timeoutSeconds": 77}}
    deployment = serving.deployment(model(serving=spec), revision, SHARED, 1)
    template = deployment["spec"]["template"]["spec"]
    assert "--exit-timeout-secs=77" in template["containers"][0]["command"]
    assert "--grpc-max-connection-age=30000" in template["containers"][0]["command"]
    stop = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    linger, moving, timeout = (int(word) for word in stop[2:5])
    assert moving > 1.1 * 30, "a connection's age is meant give or take a tenth"
    assert timeout > 77
    assert template["terminationGracePeriodSeconds"] > linger + moving + timeout


@pytest.mark.parametrize(("drain", "age"), [(0, 30000), (7, 7000), (3600, 30000)])
def test_clients_move_away_in_no_more_time_than_a_server_may_drain(drain: int, age: int) -> None:
    revision = serving.Revision("f" * 64, "image")
    spec = {"drain": {"timeoutSeconds": drain}}
    deployment = serving.deployment(model(serving=spec), revision, SHARED, 1)
    template = deployment["spec"]["template"]["spec"]
    assert f"--grpc-max-connection-age={age}" in template["containers"][0]["command"]
    stop = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert (int(stop[3]) > 1.1 * age / 1000) == bool(drain)


def test_a_server_of_several_ranks_drains_before_mpirun_gets_sigterm() -> None:
    launched = Launch(Mode.ORCHESTRATOR, 6)
    revision = serving.Revision("f" * 64, "image", 5, launched)
    spec = {"drain": {"timeoutSeconds": 77}}
    deployment = serving.deployment(model(serving=spec), revision, SHARED, 1)
    template = deployment["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "5"
    assert start.server(container["command"])[0] == "mpirun"
    assert {"name": "TRTLLM_ORCHESTRATOR", "value": "1"} in container["env"]
    _, _, *numbers, _, mark = container["lifecycle"]["preStop"]["exec"]["command"]
    linger, moving, timeout, _ = (int(number) for number in numbers)
    assert mark in container["command"]
    assert 77 < timeout < template["terminationGracePeriodSeconds"] - linger - moving


def test_a_token_is_a_reference_and_never_a_value() -> None:
    cr = resource()
    secret = {"name": "hub", "key": "token"}
    hub = {"huggingFace": {"repo": "a/b", "tokenSecretRef": secret}}
    cr["spec"]["target"]["source"] = hub
    spec = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    env = {e["name"]: e for e in spec["containers"][0]["env"]}
    assert env["HF_TOKEN_TARGET"]["valueFrom"] == {"secretKeyRef": secret}
    assert "hub" not in json.dumps(spec["containers"][0]["command"])


def test_a_fetch_job_reaches_the_networks_of_the_installation_alone() -> None:
    """They come from the operator's settings; a resource has no field for them."""
    model = SpeculativeModel.parse(resource())
    commands = [
        fetch.job(model, SHARED, "i", networks)["spec"]["template"]["spec"]["containers"][0][
            "command"
        ]
        for networks in ((), ("10.20.0.0/16", "fd12::/16"))
    ]
    assert "--allow" not in commands[0]
    assert commands[1] == [*commands[0], "--allow", "10.20.0.0/16", "--allow", "fd12::/16"]


def test_another_token_is_another_fetch_but_no_other_source() -> None:
    crs = [resource(), resource()]
    for cr, name in zip(crs, ("one", "two"), strict=True):
        hub = {"repo": "a/b", "tokenSecretRef": {"name": name}}
        cr["spec"]["target"]["source"] = {"huggingFace": hub}
    one, two = (SpeculativeModel.parse(cr) for cr in crs)
    assert fetch.job_name(one, SHARED) != fetch.job_name(two, SHARED)
    assert fetch.source_hashes(one, SHARED) == fetch.source_hashes(two, SHARED)


def test_beside_a_prebuilt_engine_no_weights_are_fetched() -> None:
    cr = resource(runtime={"backend": "TensorRT"})
    built = SpeculativeModel.parse(cr)
    cr["spec"]["target"]["engine"] = {"prebuilt": {"pvc": {"claimName": "e", "path": "e"}}}
    prebuilt = SpeculativeModel.parse(cr)

    assert "withoutWeights" not in fetch.plan(built)
    assert fetch.plan(prebuilt)["withoutWeights"] == ["target"]
    old, new = (fetch.source_hashes(model, SHARED) for model in (built, prebuilt))
    assert old["draft"] == new["draft"]
    # Once it is built again, its weights are missed.
    assert old["target"] != new["target"]


SECRETS = {
    "s3": (
        {"uri": "s3://b/p", "credentialsSecretRef": {"name": "own"}},
        {
            "S3_ACCESS_TARGET": {"name": "own", "key": "AWS_ACCESS_KEY_ID"},
            "S3_SECRET_TARGET": {"name": "own", "key": "AWS_SECRET_ACCESS_KEY"},
            "S3_SESSION_TARGET": {"name": "own", "key": "AWS_SESSION_TOKEN", "optional": True},
        },
    ),
    "gcs": (
        {"uri": "gs://b/p", "credentialsSecretRef": {"name": "own", "key": "k.json"}},
        {"GCS_KEY_TARGET": {"name": "own", "key": "k.json"}},
    ),
    "oci": (
        {"reference": "r.example/m:1", "pullSecretRef": {"name": "own"}},
        {"OCI_CONFIG_TARGET": {"name": "own", "key": ".dockerconfigjson"}},
    ),
    "ngc": (
        {"resource": "o/t/m:1", "authSecretRef": {"name": "own"}},
        {"NGC_API_KEY_TARGET": {"name": "own", "key": "token"}},
    ),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_secrets_of_every_source_reach_the_fetch_container_only(kind: str) -> None:
    source, expected = SECRETS[kind]
    cr = resource("None")
    cr["spec"]["target"]["source"] = {kind: source}
    pod = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    env = pod["containers"][0]["env"]
    secrets = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in env if "valueFrom" in e}
    assert secrets == expected
    plan = json.loads(pod["containers"][0]["command"][-1])
    assert plan == {
        "models": {"target": {kind: {k: v for k, v in source.items() if "SecretRef" not in k}}}
    }


def test_heads_and_prebuilt_engines_are_fetched_too() -> None:
    cr = resource()
    cr["spec"]["target"]["engine"] = {"prebuilt": {"pvc": {"claimName": "e", "path": "t"}}}
    cr["spec"]["speculation"] |= {
        "method": "Medusa",
        "medusa": {"heads": {"huggingFace": {"repo": "a/b", "tokenSecretRef": {"name": "s"}}}},
    }
    pod = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert set(json.loads(container["command"][-1])["models"]) == {
        "target",
        "draft",
        "heads",
        "target-engine",
    }
    assert "HF_TOKEN_HEADS" in {e["name"] for e in container["env"]}
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert "/sources/target-engine" in mounts


def test_what_is_applied_is_plain_json() -> None:
    world = World(resource())
    world.settle(lambda component: fetched() if component == "fetch" else {})
    for obj in world.ever_applied.values():
        assert json.loads(json.dumps(obj)) == obj
        assert obj["metadata"]["ownerReferences"][0]["uid"] == "uid-pair"
        assert obj["metadata"]["namespace"] == "demo"
