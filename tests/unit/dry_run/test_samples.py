"""The plans of the samples, compared with values computed by hand."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from support.documents import load
from support.golden_cases import SAMPLES
from unit.dry_run.commands import Json, plan_json, run, sample_plan, sample_text

ENGINES = {name: path for name, path in SAMPLES.items() if name.startswith("tensorrt-")}


class Expected(NamedTuple):
    """Launch mode, world size, GPUs per pod; device ordinals and MPI ranks by role."""

    launch: str
    world: int
    gpus: int
    devices: dict[str, list[int]]
    ranks: Mapping[str, list[int]] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({"target": "none"})


FOUR, PAIR = [0, 1, 2, 3], {"target": "draft_tokens_external", "draft": "none"}
EXPECTED = {
    "tensorrt-baseline": Expected("Leader", 4, 4, {"target": FOUR}),
    "tensorrt-draft-target-shared": Expected(
        "Orchestrator",
        6,
        4,
        {"target": FOUR, "draft": [0]},
        {"target": [2, 3, 4, 5], "draft": [1]},
        PAIR,
    ),
    "tensorrt-draft-target-dedicated": Expected(
        "Orchestrator",
        6,
        5,
        {"target": FOUR, "draft": [4]},
        {"target": [2, 3, 4, 5], "draft": [1]},
        PAIR,
    ),
    "tensorrt-draft-target-fast-logits": Expected(
        "Orchestrator",
        6,
        5,
        {"target": FOUR, "draft": [4]},
        {"target": [2, 3, 4, 5], "draft": [1]},
        PAIR,
    ),
    "tensorrt-fp8-one-gpu": Expected("Plain", 1, 1, {"target": [0], "draft": [0]}, {}, PAIR),
    "tensorrt-draft-target-lookup": Expected(
        "Plain", 1, 1, {"target": [0], "draft": [0]}, {}, PAIR
    ),
    "tensorrt-ngram": Expected(
        "Plain", 1, 1, {"target": [0]}, {}, {"target": "draft_tokens_external"}
    ),
    "tensorrt-eagle": Expected("Plain", 1, 1, {"target": [0]}, {}, {"target": "eagle"}),
    "tensorrt-medusa": Expected("Plain", 1, 1, {"target": [0]}, {}, {"target": "medusa"}),
    "tensorrt-redrafter": Expected(
        "Plain", 1, 1, {"target": [0]}, {}, {"target": "explicit_draft_tokens"}
    ),
    "tensorrt-lookahead": Expected(
        "Plain", 1, 1, {"target": [0]}, {}, {"target": "lookahead_decoding"}
    ),
}
# Samples with several servers, or several pods per server, have their own tests below.
SEPARATE = {"tensorrt-two-servers", "tensorrt-405b-two-nodes"}


def contexts(command: list[str]) -> list[list[str]]:
    """Return mpirun's application contexts; a server without MPI has a single context."""
    text = shlex.join(command[3:] if command[0] == "mpirun" else command)
    return [shlex.split(part) for part in text.split(" : ")]


def test_every_engine_sample_is_expected() -> None:
    assert set(EXPECTED) | SEPARATE == set(ENGINES)


@pytest.mark.parametrize("sample", EXPECTED)
def test_devices_ranks_and_modes(sample: str) -> None:
    expected, plan = EXPECTED[sample], sample_plan(sample)
    chosen = plan["plan"]
    assert (chosen["launch"], chosen["worldSize"]) == (expected.launch, expected.world)
    assert chosen["devices"] == expected.devices
    assert chosen.get("participantIds", {}) == expected.ranks
    assert chosen["gpuProduct"] == "NVIDIA-H100-80GB-HBM3"
    modes = {item["role"]: item["build"]["speculativeDecodingMode"] for item in plan["engines"]}
    assert modes == expected.modes
    (server,) = plan["servers"]
    assert server["gpusPerPod"] == expected.gpus
    shown = sample_text(sample)
    for text in (expected.launch, "NVIDIA-H100-80GB-HBM3", *expected.modes.values()):
        assert text in shown


@pytest.mark.parametrize("sample", EXPECTED)
def test_command_line_has_the_published_form(sample: str) -> None:
    expected, plan = EXPECTED[sample], sample_plan(sample)
    (server,) = plan["servers"]
    command, env = server["command"], server["env"]
    ranks = contexts(command)
    assert len(ranks) == expected.world
    assert (command[0] == "mpirun") == (expected.world > 1)
    shm_options = [a for a in command if a.startswith("--backend-config=python,shm-region")]
    assert len(set(shm_options)) == expected.world
    loads = {"Leader": {"tensorrt_llm"}, "Orchestrator": {"tensorrt_llm", "tensorrt_llm_draft"}}
    for rank, context in enumerate(ranks):
        assert "--disable-auto-complete-config" in context
        loaded = {a.partition("=")[2] for a in context if a.startswith("--load-model=")}
        assert loaded == (loads[expected.launch] if rank else set())
        assert ("--model-control-mode=explicit" in context) == (rank > 0)
        assert ("--allow-http=false" in context) == (rank > 0)
    orchestrated = expected.launch == "Orchestrator"
    assert (env.get("TRTLLM_ORCHESTRATOR") == "1") == orchestrated
    assert (env.get("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES") == "0") == orchestrated


def test_two_servers_have_a_command_each() -> None:
    plan = sample_plan("tensorrt-two-servers")
    target, draft = plan["servers"]
    assert draft["name"] == f"{target['name']}-draft"
    assert [len(contexts(item["command"])) for item in (target, draft)] == [4, 1]
    assert [item["gpusPerPod"] for item in (target, draft)] == [4, 1]
    assert [item["name"] for item in plan["service"]] == [target["name"], draft["name"]]
    repositories = [
        next(a for a in item["command"] if a.startswith("--model-repository="))
        for item in (target, draft)
    ]
    assert [path.rsplit("/", 1)[1] for path in repositories] == ["target", "draft"]
    assert plan["plan"]["devices"] == {"target": FOUR, "draft": [0]}
    hosts = [item["grpc"].partition(".")[0] for item in plan["endpoints"]]
    assert hosts == [target["name"], draft["name"]]


def test_the_server_of_a_draft_has_replicas_and_a_product(tmp_path: Path) -> None:
    own = "topology: TwoServers\n      draftServer: {replicas: 3, gpu: {product: NVIDIA-L4}}"
    text = SAMPLES["tensorrt-two-servers"].read_text("utf-8").replace("topology: TwoServers", own)
    path = tmp_path / "own.yaml"
    path.write_text(text)

    plan = plan_json("-f", path)
    shown = run("plan", "-f", path).stdout

    assert [server["replicas"] for server in plan["servers"]] == [1, 3]
    products = {item["role"]: item["build"]["gpuProduct"] for item in plan["engines"]}
    assert products == {"target": "NVIDIA-H100-80GB-HBM3", "draft": "NVIDIA-L4"}
    assert "draftGpuProduct" in shown
    assert "Deployment, 3 replicas" in shown


def test_group_spreads_its_ranks_over_two_pods() -> None:
    plan = sample_plan("tensorrt-405b-two-nodes")
    (server,) = plan["servers"]
    assert (server["kind"], server["replicas"]) == ("LeaderWorkerSet", 1)
    assert (server["podsPerReplica"], server["gpusPerPod"]) == (2, 8)
    assert (plan["plan"]["launch"], plan["plan"]["worldSize"]) == ("Leader", 16)
    assert plan["plan"]["devices"] == {"target": list(range(8))}
    hosts = [context[context.index("--host") + 1] for context in contexts(server["command"])]
    assert len(hosts) == 16
    # The first eight ranks run in the leader pod, the others in the worker pod.
    assert [len(set(half)) for half in (hosts[:8], hosts[8:])] == [1, 1]
    assert hosts[0] != hosts[8]
    (build,) = [job for job in plan["jobs"] if job["component"] == "engine"]
    assert build["gpus"] <= server["gpusPerPod"]


@pytest.mark.parametrize("sample", ENGINES)
def test_builds_are_planned_for_the_gpu_product(sample: str) -> None:
    plan = sample_plan(sample)
    assert plan["refused"] == ""
    for engine in plan["engines"]:
        build = engine["build"]
        assert build["backend"] == "TensorRT"
        assert build["gpuProduct"] == "NVIDIA-H100-80GB-HBM3"
        assert (build["heads"] is not None) == (sample.split("-")[1] in HEADED)
    jobs = [job for job in plan["jobs"] if job["component"] == "engine"]
    assert len(jobs) == len(plan["engines"])
    assert all(job["gpus"] >= 1 and job["command"] for job in jobs)


def test_table_shows_the_quantization_if_there_is_one() -> None:
    shown = sample_text("tensorrt-fp8-one-gpu")
    assert shown.count("bfloat16, FP8") == 1
    assert "bfloat16, None" not in shown


HEADED = {"eagle", "medusa", "redrafter"}


def test_method_parameters_reach_the_engine_builds() -> None:
    def build(sample: str) -> Json:
        (engine,) = sample_plan(f"tensorrt-{sample}")["engines"]
        inputs: Json = engine["build"]
        return inputs

    eagle, medusa = build("eagle"), build("medusa")
    assert eagle["eagle"] == {"numLayers": 4, "maxNonLeavesPerLayer": 10}
    assert (eagle["maxDraftTokens"], medusa["maxDraftTokens"]) == (63, 63)
    assert medusa["medusa"] == {"numHeads": 4, "numLayers": 1}
    drafter = {"numBeams": 5, "draftLenPerBeam": 5, "greedySearch": True}
    assert build("redrafter")["reDrafter"] == drafter
    # Draft tokens are N - 2 + (W - 1 + G)(N - 1); here W, N and G are 7.
    assert build("lookahead")["maxDraftTokens"] == 83


HOSTILE = "'\"; $(id) `id` ${x}\n--model-repository=/etc \\ é"
FIELDS: dict[str, Any] = {
    "engine.extraArgs": {"reduce_fusion": HOSTILE},
    "quantization.calibration.dataset": HOSTILE,
    "source.huggingFace.repo": HOSTILE,
    "source.huggingFace.revision": HOSTILE,
    "limits.maxSeqLen": HOSTILE,
}


@pytest.mark.parametrize("field", FIELDS)
def test_special_characters_are_data_or_refused(field: str, tmp_path: Path) -> None:
    body = load(SAMPLES["tensorrt-fp8-one-gpu"].read_text("utf-8"))
    parent = body["spec"]["target"]
    *parents, last = field.split(".")
    for name in parents:
        parent = parent.setdefault(name, {})
    parent[last] = FIELDS[field]
    (tmp_path / "cr.yaml").write_text(yaml.safe_dump(body))
    result = run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out")
    assert result.exit_code in (0, 1, 2), result.output
    if result.exit_code:
        # Target and draft share these limits, so the file has two errors.
        assert len(result.stderr.splitlines()) == (2 if field == "limits.maxSeqLen" else 1)
        assert not (tmp_path / "out").exists()
        return
    for path in (tmp_path / "out").glob("*.yaml"):
        obj = load(path.read_text("utf-8"))
        template = obj.get("spec", {}).get("template", {}) if obj["kind"] != "Service" else {}
        for container in template.get("spec", {}).get("containers", []):
            assert container["command"][0] not in ("sh", "bash", "/bin/sh", "/bin/bash")
            # The kubelet replaces $$ by $, and expands variables after a single $.
            arguments = [argument.replace("$$", "") for argument in container["command"]]
            assert not any("$" in argument for argument in arguments)
            assert not any(a.startswith("--model-repository=/etc") for a in arguments)


def test_sidecars_of_a_server_are_shown(tmp_path: Path) -> None:
    own = "\n    sidecars: [{name: shipper, image: 'registry.example/shipper:1'}]"
    text = SAMPLES["reference-openai"].read_text("utf-8")
    path = tmp_path / "own.yaml"
    path.write_text(text.rstrip() + own)

    (server,) = plan_json("-f", path)["servers"]

    assert server["sidecars"] == [{"name": "shipper", "image": "registry.example/shipper:1"}]
    assert server["command"][0] == "tritonserver"
    assert "sidecar shipper" in run("plan", "-f", path).stdout
