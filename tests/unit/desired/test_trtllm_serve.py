"""The objects of a service with `trtllm-serve` behind the proxy."""

import json
from typing import Any

import pytest
import yaml

from specdec.api.checkpoint_facts import NO_FACTS
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.pytorch import configuration
from specdec.desired import measurement, network, policy, programs
from specdec.images.openai.proxy.__main__ import _parser
from specdec.pipeline import validation
from specdec.pipeline.stages import verification_result
from support.simulated_cluster import IMAGES, settled
from unit.backends.pytorch_cases import Json, put, pytorch

# Flags of trtllm-serve, each with the key of the options file.
FLAGS = {
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "max_seq_len": "max_seq_len",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
}


def served(path: str = "metadata", value: Any = None, version: str = "1.2.1") -> Json:
    cr = put(pytorch("NGram", version), "runtime.frontend", "TrtllmServe")
    return put(cr, path, value) if value is not None else cr


def model(*change: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(served(*change))


def pod(cr: Json) -> Json:
    world = settled(cr)
    (body,) = [b for (kind, _), b in world.ever_applied.items() if kind == "Deployment"]
    result: Json = body["spec"]["template"]["spec"]
    return result


def test_only_the_proxy_has_ports() -> None:
    server, proxy = pod(served())["containers"]
    assert "ports" not in server
    ports = {port["name"]: port["containerPort"] for port in proxy["ports"]}
    assert ports == {"http": 8000, "metrics": 8002}
    assert "volumes" not in proxy
    assert [mount["name"] for mount in proxy["volumeMounts"]] == ["tmp"]


@pytest.mark.parametrize("version", ["1.1.0", "1.2.1", "1.3.0"])
def test_limits_are_flags_with_the_values_of_the_options_file(version: str) -> None:
    """`commands/serve.py` of 1.1 and 1.2 has these flags, with defaults such as 2 048 requests.

    There the file overrides them. In 1.0 they overrode the file, and nothing promises the order.
    """
    cr = put(served(version=version), "target.parallelism", {"tensor": 2})
    put(cr, "target.limits", {"maxBatchSize": 6, "maxInputLen": 100, "maxSeqLen": 900})
    put(cr, "target.limits.maxNumTokens", 700)
    server, _ = pod(cr)["containers"]
    argv = server["command"][server["command"].index("trtllm-serve") :]
    flags = {name: int(argv[argv.index(f"--{name}") + 1]) for name in FLAGS}
    resource = SpeculativeModel.parse(cr)
    facts = Facts(
        version=version, checkpoints={"target": Checkpoint("target", "a", "", 0, NO_FACTS)}
    )
    options = yaml.safe_load(configuration.options(resource, facts))
    assert flags == {name: options[key] for name, key in FLAGS.items()}
    assert flags["max_batch_size"] == 6


def test_the_proxy_accepts_its_arguments_and_knows_the_servers_name() -> None:
    server, proxy = pod(served("serving.maxQueueSize", 5))["containers"]
    assert proxy["command"][:3] == ["python", "-m", "specdec.images.openai.proxy"]
    parsed = _parser().parse_args(proxy["command"][3:])
    argv = server["command"]
    checkpoint = argv[argv.index("trtllm-serve") + 1]
    assert parsed.upstream_model == checkpoint.rpartition("/")[2]
    host, port = (argv[argv.index(name) + 1] for name in ("--host", "--port"))
    assert parsed.upstream == f"{host}:{port}"
    batch = model().spec.target.limits.max_batch_size
    assert parsed.max_in_flight == batch + 5


def test_the_hook_ends_within_the_grace_period_and_waits_for_both_ports() -> None:
    spec = pod(served("serving.drain", {"timeoutSeconds": 7}))
    server, proxy = spec["containers"]
    *_, linger, reconnecting, rest, metrics, ports = server["lifecycle"]["preStop"]["exec"][
        "command"
    ]
    assert int(linger) + int(reconnecting) + int(rest) < spec["terminationGracePeriodSeconds"]
    assert (metrics, ports) == ("0", "8000,8001")
    assert proxy["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", linger]


def test_service_status_and_policy_have_no_grpc() -> None:
    resource = model("networking", {"networkPolicy": {"mode": "Enabled"}})
    ports = {port["name"]: port["port"] for port in network.service(resource)["spec"]["ports"]}
    assert ports == {"http": 8000, "metrics": 8002}
    host = f"http://{resource.metadata.name}.{resource.metadata.namespace}.svc:8000"
    assert network.endpoint(resource, "target") == {
        "role": "target",
        "url": host,
        "openAI": f"{host}/v1",
    }
    (rules,) = policy.objects(resource)
    first, second = rules["spec"]["ingress"]
    assert [port["port"] for port in first["ports"]] == [8000]
    assert [port["port"] for port in second["ports"]] == [8002]
    assert "from" not in second


@pytest.mark.parametrize(("replicas", "has"), [(1, True), (2, False)])
def test_the_verification_reads_counters_of_one_pod_only(replicas: int, has: bool) -> None:
    resource = model("serving.replicas", replicas)
    job = measurement.verify_job(resource, "a" * 16, "1.2.1", 0, "image")
    plan = json.loads(job["spec"]["template"]["spec"]["containers"][0]["command"][-1])
    assert (plan["kind"], plan["compares"]) == ("trtllm_serve", False)
    assert plan["server"].endswith(".svc:8000")
    assert (plan.get("metrics") or "").endswith(".svc:8002") == has


def test_a_verification_without_counts_is_explained() -> None:
    result = {"prompts": 3, "failed": 0, "active": False}
    active, *_ = verification_result.conditions(model(), result)
    assert active.status == "Unknown"
    assert "from TensorRT-LLM 1.3 on" in active.message


def test_pods_mount_the_programs_of_their_front_end_only() -> None:
    assert sorted(programs.config_map(model())["data"]) == [
        "check_volume.py",
        "drain.py",
        "health.py",
    ]


def test_faults_of_triton_are_no_warning_where_it_does_not_run() -> None:
    old = "nvcr.io/nvidia/tritonserver:25.03-trtllm-python-py3"
    reasons = {}
    for frontend in ("Triton", "TrtllmServe"):
        cr = put(put(pytorch("NGram"), "runtime.image", old), "runtime.frontend", frontend)
        world = settled(cr)
        reasons[frontend] = world.condition("Accepted")["reason"]
    assert reasons == {"Triton": "BelowFixLevel", "TrtllmServe": "Valid"}


def test_another_backend_has_no_such_front_end() -> None:
    cr = put(pytorch("NGram"), "runtime", {"backend": "Reference", "frontend": "TrtllmServe"})
    cr["spec"]["speculation"] = {"method": "None"}
    problem = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
    assert problem is not None
    assert problem.message == (
        "spec.runtime.frontend: only backend PyTorch has front end TrtllmServe: remove "
        "runtime.frontend, or set spec.runtime.backend to PyTorch"
    )
