"""TwoServers: the draft's server has its own number of replicas and its own GPU product."""

from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import disruption, serving
from specdec.pipeline import validation
from support.simulated_cluster import IMAGES, World, settled
from unit.pipeline.tensorrt import Json, engines, put
from unit.pipeline.test_two_servers import DRAFT, two_servers

H100, L4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
OWN = f"{DRAFT}.draftServer"


def own_server(drafts: int | None = None, product: str = L4, **served: object) -> Json:
    cr = two_servers(**served)
    put(cr, f"{OWN}.gpu.product", product)
    if drafts is not None:
        put(cr, f"{OWN}.replicas", drafts)
    return cr


def replicas(world: World) -> dict[str, int]:
    return {name: live["spec"]["replicas"] for name, live in world.deployments.items()}


def product(body: Json) -> str:
    selector: dict[str, str] = body["spec"]["template"]["spec"]["nodeSelector"]
    return selector[names.GPU_PRODUCT]


def test_draft_is_built_and_served_on_its_own_product() -> None:
    world = settled(own_server())

    servers = {name: product(body) for name, body in world.deployments.items()}
    builds = {
        entry["role"]: product(world.jobs[entry["job"]]) for entry in world.cr["status"]["engines"]
    }

    assert servers == {"pair": H100, "pair-draft": L4}
    assert builds == {"target": H100, "draft": L4}
    plan = world.cr["status"]["plan"]
    assert (plan["gpuProduct"], plan["draftGpuProduct"]) == (H100, L4)


def test_the_product_of_the_draft_is_in_the_key_of_its_engine_alone() -> None:
    one, other = engines(two_servers()), engines(own_server())

    assert one["target"].key == other["target"].key
    assert one["draft"].key != other["draft"].key
    assert one["draft"].key == engines(own_server(product=H100))["draft"].key


def test_one_product_has_one_entry_in_the_plan() -> None:
    assert "draftGpuProduct" not in settled(two_servers()).cr["status"]["plan"]


def test_memory_is_planned_for_each_product() -> None:
    cr = own_server()
    devices = settled(cr).cr["status"]["plan"]["memory"]["devices"]
    assert {d["device"]: d["gpuMiB"] for d in devices} == {
        "target:0": 81559,
        "target:1": 81559,
        "draft:0": 23034,
    }


def test_unknown_memory_names_the_field_of_the_draft() -> None:
    world = settled(own_server(product="Example-9"))

    fits = world.condition("MemoryFits")
    assert (fits["status"], fits["reason"]) == ("Unknown", "UnknownGpu")
    assert "draftServer.gpu.product is Example-9" in fits["message"]
    assert "set spec.speculation.draftTarget.draftServer.gpu.memoryMiB" in fits["message"]


@pytest.mark.parametrize(
    ("role", "allowed"), [("speculation.draftTarget.draft", False), ("target", True)]
)
def test_formats_are_checked_on_the_product_of_the_model(role: str, *, allowed: bool) -> None:
    cr = put(own_server(product="NVIDIA-A100-SXM4-80GB"), f"{role}.quantization.method", "FP8")
    problem = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
    if allowed:
        assert problem is None
        return
    assert problem is not None
    assert problem.reason == "UnsupportedGpu"
    assert "GPU NVIDIA-A100-SXM4-80GB has 8.0" in problem.message


def test_each_server_has_its_own_replicas() -> None:
    world = settled(own_server(2, replicas=6))

    assert replicas(world) == {"pair": 6, "pair-draft": 2}
    status = world.cr["status"]
    assert (status["replicas"], status["readyReplicas"]) == (6, 6)
    assert status["columns"]["ready"] == "6/6"
    message = world.condition("Available")["message"]
    assert "6 of 6 pods of the target ready" in message
    assert "2 of 2 pods of the draft ready" in message


def test_scaling_leaves_the_draft_alone_also_while_an_engine_is_built() -> None:
    world = settled(own_server(2))
    world.spec["serving"] = {"replicas": 5}
    world.step()
    assert replicas(world) == {"pair": 5, "pair-draft": 2}

    put(world.cr, "target.limits.maxSeqLen", 384)
    world.spec["serving"] = {"replicas": 3}
    world.step()
    assert world.condition("EnginesReady")["status"] == "False"
    assert replicas(world) == {"pair": 3, "pair-draft": 2}


@pytest.mark.parametrize("patch", [{"suspend": True}, {"serving": {"replicas": 0}}])
def test_no_draft_runs_without_a_target(patch: dict[str, Any]) -> None:
    world = settled(own_server(2))
    world.spec.update(patch)
    world.step()
    assert replicas(world) == {"pair": 0, "pair-draft": 0}


def test_available_waits_for_all_drafts_and_one_ready_draft_is_enough_for_replicas() -> None:
    world = settled(own_server(2, replicas=6))
    draft = world.deployments["pair-draft"]["status"]

    draft["readyReplicas"] = 1
    world.step()
    assert world.condition("Available")["status"] == "False"
    assert "1 of 2 pods" in world.condition("Available")["message"]
    assert world.cr["status"]["readyReplicas"] == 6

    draft["readyReplicas"] = 0
    world.step()
    assert world.cr["status"]["readyReplicas"] == 0


def test_autoscaled_target_does_not_lower_what_the_draft_needs() -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 8, "metrics": [{"type": "Cpu", "target": "70"}]}
    world = settled(own_server(2, replicas=6, scaling=scaling))
    world.deployments["pair"]["status"]["readyReplicas"] = 1
    world.step()
    assert world.condition("Available")["status"] == "True"

    world.deployments["pair-draft"]["status"]["readyReplicas"] = 1
    world.step()
    assert world.condition("Available")["status"] == "False"


def budgets(cr: Json) -> dict[str, dict[str, int]]:
    return {
        body["metadata"]["name"]: {k: v for k, v in body["spec"].items() if k.endswith("vailable")}
        for body in disruption.objects(SpeculativeModel.parse(cr))
    }


def test_a_budget_needs_two_pods_of_its_own_server() -> None:
    assert set(budgets(own_server(1, replicas=3))) == {"pair"}
    assert set(budgets(own_server(2, replicas=1))) == {"pair-draft"}
    assert set(budgets(own_server(2, replicas=3))) == {"pair", "pair-draft"}
    assert budgets(own_server(2, replicas=0)) == {}


def test_bounds_of_the_target_never_block_or_stop_all_drafts() -> None:
    for bounds in ({"maxUnavailable": 4}, {"minAvailable": 4}):
        made = budgets(own_server(2, replicas=6, disruption=bounds))
        assert made == {"pair": bounds, "pair-draft": {"maxUnavailable": 1}}
    kept = budgets(own_server(2, replicas=6, disruption={"maxUnavailable": 0}))
    assert kept["pair-draft"] == {"maxUnavailable": 0}


def test_a_rollout_keeps_one_draft() -> None:
    model = SpeculativeModel.parse(own_server(2, replicas=6, rollout={"maxUnavailable": 4}))
    counts = {
        role: serving.strategy(model, role)["rollingUpdate"]["maxUnavailable"]
        for role in ("target", "draft")
    }
    assert counts == {"target": 4, "draft": 1}


@pytest.mark.parametrize(
    ("cr", "mode"),
    [
        (two_servers(), "ReadWriteOnce"),
        (own_server(product=H100), "ReadWriteOnce"),
        (own_server(2, product=H100), "ReadWriteMany"),
        (own_server(), "ReadWriteMany"),
    ],
)
def test_pods_on_several_nodes_need_a_volume_for_several(cr: Json, mode: str) -> None:
    del cr["spec"]["storage"]["accessMode"]
    assert SpeculativeModel.parse(cr).access_mode == mode


def test_draft_without_a_node_names_its_product_and_not_the_targets_field() -> None:
    world = settled(own_server())
    live = world.deployments["pair-draft"]
    live["status"]["readyReplicas"] = 0
    template = live["spec"]["template"]
    meta = {"name": "pair-draft-x", "labels": template["metadata"]["labels"]}
    scheduled = {"type": "PodScheduled", "reason": "Unschedulable", "message": "no node fits"}
    status = {"phase": "Pending", "conditions": [{**scheduled, "status": "False"}]}
    stamp = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    world.pods.append({"metadata": meta | stamp, "spec": template["spec"], "status": status})

    world.step()

    available = world.condition("Available")
    assert available["reason"] == "Unschedulable"
    assert f"nvidia.com/gpu.product is {L4}" in available["message"]
    assert "spec.gpu.product" not in available["message"]
