"""Probes, preStop hook and grace period of a server pod."""

import json
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import serving
from specdec.desired.pod import Volume
from specdec.images.serving import engines, health
from specdec.tools.dry_run.plan import repository
from specdec.triton import start
from specdec.triton.layout import Launch, Mode
from support.simulated_cluster import World, fetched, resource

SHARED = Volume("models", "uid", single_node=False)


def model(**spec: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(**spec))


def startup_probe(**spec: Any) -> tuple[dict[str, Any], float]:
    """Return the startup probe of a server, and the shortest time in seconds of a failed run."""
    deployment = serving.deployment(model(**spec), serving.Revision("f" * 64, "image"), SHARED, 1)
    probe = deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    return probe, json.loads(probe["exec"]["command"][-1])["seconds"] - engines._LEAST


@pytest.mark.parametrize("budget", [30, 61, 1800])
def test_the_startup_budget_is_covered_by_the_probe(budget: int) -> None:
    probe, shortest = startup_probe(serving={"probes": {"startupBudgetSeconds": budget}})
    assert budget <= probe["failureThreshold"] * shortest < budget + shortest
    assert health._LEAST == engines._LEAST


def test_startup_probe_runs_soon_after_the_container() -> None:
    """The kubelet counts the first period from the pod's start, when no container runs yet."""
    probe, _ = startup_probe()
    assert probe["periodSeconds"] == 1


def test_server_gets_the_variables_of_the_resource_and_ours_win() -> None:
    secret = {"secretKeyRef": {"name": "tokens", "key": "api"}}
    given = [
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "TOKEN", "valueFrom": secret},
    ]
    revision = serving.Revision("f" * 64, "image")
    plain = serving.deployment(model(), revision, SHARED, 1)
    (ours,) = plain["spec"]["template"]["spec"]["containers"]
    taken = [{"name": item["name"], "value": "another"} for item in ours["env"]]
    made = serving.deployment(model(serving={"env": [*given, *taken]}), revision, SHARED, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    assert ours["env"]
    assert server["env"] == [*given, *ours["env"]]


def probes(revision: serving.Revision, **spec: Any) -> dict[str, Any]:
    """Return the plans of a server's probes by name."""
    made = serving.deployment(model(serving=spec), revision, SHARED, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    return {
        name: json.loads(server[f"{name}Probe"]["exec"]["command"][-1])
        for name in ("startup", "readiness")
    }


@pytest.mark.parametrize("engines", [["tensorrt_llm", "tensorrt_llm_draft"], ["tensorrt_llm"]])
def test_every_engine_of_a_server_is_probed(engines: list[str]) -> None:
    for plan in probes(serving.Revision("f" * 64, "image", engines=tuple(engines))).values():
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


def test_startup_attempt_ends_before_its_timeout() -> None:
    probe, shortest = startup_probe()
    assert shortest + engines._LEAST < probe["timeoutSeconds"]


def test_pods_live_longer_than_they_drain() -> None:
    revision = serving.Revision("f" * 64, "image")
    spec = {"drain": {"timeoutSeconds": 77}}
    deployment = serving.deployment(model(serving=spec), revision, SHARED, 1)
    template = deployment["spec"]["template"]["spec"]
    assert "--exit-timeout-secs=77" in template["containers"][0]["command"]
    assert "--grpc-max-connection-age=30000" in template["containers"][0]["command"]
    stop = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    linger, reconnecting, timeout = (int(word) for word in stop[2:5])
    assert reconnecting > 1.1 * 30, "a connection's age is meant give or take a tenth"
    assert timeout > 77
    assert template["terminationGracePeriodSeconds"] > linger + reconnecting + timeout


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
    linger, reconnecting, timeout, _ = (int(number) for number in numbers)
    assert mark in container["command"]
    assert 77 < timeout < template["terminationGracePeriodSeconds"] - linger - reconnecting


def test_settings_of_triton_reach_its_command_and_models() -> None:
    settings = {
        "preprocessingInstances": 4,
        "postprocessingInstances": 2,
        "queueDelayMicroseconds": 200,
        "logVerbose": 1,
    }
    texts = []
    for changes in ({}, {"triton": settings}):
        world = World(resource(serving={"streaming": False, **changes}))
        world.settle(lambda component: fetched() if component == "fetch" else {})
        deployment = world.ever_applied["Deployment", "pair"]
        (server, *_) = deployment["spec"]["template"]["spec"]["containers"]
        assert ("--log-verbose=1" in " ".join(server["command"])) is bool(changes)
        texts.append(repository(world.ever_applied))
    plain, changed = texts
    assert "count: 4" in changed["preprocessing/config.pbtxt"]
    assert "count: 2" in changed["postprocessing/config.pbtxt"]
    for engine in ("tensorrt_llm", "tensorrt_llm_draft"):
        assert "max_queue_delay_microseconds: 200" in changed[f"{engine}/config.pbtxt"]
    different = {path for path in plain if plain[path] != changed[path]}
    assert different == {
        f"{name}/config.pbtxt"
        for name in ("preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_draft")
    }


def test_volumes_of_a_resource_have_names_of_their_own() -> None:
    """A volume of the resource with the name "models" does not replace the operator's volume."""
    volume = {"name": "models", "configMap": {"name": "rules"}}
    mount = {"name": "models", "mountPath": "/etc/ours", "readOnly": True}
    extra = {"extraVolumes": [volume], "extraVolumeMounts": [mount]}
    world = World(resource(serving=extra))
    world.settle(lambda component: fetched() if component == "fetch" else {})
    spec = world.ever_applied["Deployment", "pair"]["spec"]["template"]["spec"]
    names = [item["name"] for item in spec["volumes"]]
    assert len(names) == len(set(names))
    assert {**volume, "name": "extra-models"} in spec["volumes"]
    assert {**mount, "name": "extra-models"} in spec["containers"][0]["volumeMounts"]
