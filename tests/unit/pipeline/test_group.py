"""A service on several nodes: its LeaderWorkerSet, its pods, and changes from and to it."""

from typing import Any

import pytest

from specdec.api import names
from specdec.pipeline.observed import Object
from specdec.pipeline.pods import group
from specdec.triton import start
from support.simulated_cluster import World, fetched, limits, resource, source, waiting

SET = "leaderworkerset.sigs.k8s.io/name"
SHARED: dict[str, Any] = {"size": "1Gi", "accessMode": "ReadWriteMany"}


def world(nodes: int = 2, **serving: Any) -> World:
    """Return a world with a target alone on H100 nodes, and 8 ranks on each node."""
    target = {
        "source": source("target"),
        "limits": limits(),
        "parallelism": {"tensor": 8, "pipeline": nodes},
    }
    return World(
        resource(
            "None",
            runtime={"backend": "TensorRT"},
            gpu={"product": "NVIDIA-H100-80GB-HBM3"},
            target=target,
            storage=SHARED,
            serving={"nodesPerReplica": nodes, **serving},
        )
    )


def result(component: str) -> dict[str, Any]:
    return fetched({"heads": 64, "kvHeads": 16}) if component == "fetch" else {}


def served(nodes: int = 2, **serving: Any) -> World:
    made = world(nodes, **serving)
    made.settle(result)
    return made


def available(made: World) -> dict[str, Any]:
    conditions = made.cr["status"]["conditions"]
    return next(c for c in conditions if c["type"] == "Available")


def live(made: World) -> dict[str, Any]:
    assert made.group is not None
    return made.group


def template(made: World, part: str) -> dict[str, Any]:
    pod: dict[str, Any] = live(made)["spec"]["leaderWorkerTemplate"][f"{part}Template"]
    return pod


def pod(made: World, part: str, name: str, status: Object, **labels: str) -> None:
    own = template(made, part)
    metadata = {
        "name": name,
        "labels": {**own["metadata"]["labels"], SET: "pair-group", **labels},
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    made.pods.append({"metadata": metadata, "spec": own["spec"], "status": status})


def test_two_nodes_are_served_by_a_group_of_two_pods() -> None:
    made = served()
    assert not made.deployments
    spec = live(made)["spec"]
    assert spec["leaderWorkerTemplate"]["size"] == 2
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert available(made)["reason"] == "PodsReady"
    assert made.cr["status"]["replicas"] == made.cr["status"]["readyReplicas"] == 1
    leader, worker = (template(made, part) for part in ("leader", "worker"))
    assert names.selector(made.model()).items() <= leader["metadata"]["labels"].items()
    assert not names.selector(made.model()).items() <= worker["metadata"]["labels"].items()
    (first,), (second,) = leader["spec"]["containers"], worker["spec"]["containers"]
    assert start.server(first["command"])[0] == "mpirun"
    assert {"startupProbe", "readinessProbe", "livenessProbe", "ports"} <= set(first)
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "ports"} & set(second)
    grace = [t["spec"]["terminationGracePeriodSeconds"] for t in (leader, worker)]
    assert grace[0] == grace[1], "a worker must outlast its leader's drain"
    for pod_spec in (leader["spec"], worker["spec"]):
        assert pod_spec["automountServiceAccountToken"] is False
        assert pod_spec["nodeSelector"] == {names.GPU_PRODUCT: "NVIDIA-H100-80GB-HBM3"}


def test_every_pod_of_a_group_has_the_variables_of_the_resource() -> None:
    variable = {"name": "NCCL_SOCKET_IFNAME", "value": "eth1"}
    made = served(env=[variable])
    for part in ("leader", "worker"):
        (server, *_) = template(made, part)["spec"]["containers"]
        assert variable in server["env"], part


def test_no_desired_object_has_the_key() -> None:
    made = world()
    for _ in range(12):
        decision = made.step()
        for obj in decision.apply:
            assert obj["kind"] != "Secret" or not {"data", "stringData"} & set(obj)
        made.cr["status"] = {}
        if made.claim is None:
            made.bind()
        for name, job in list(made.jobs.items()):
            if "status" not in job:
                made.finish(name, result(job["metadata"]["labels"][names.COMPONENT]))


def test_scaling_and_suspending_keep_the_group() -> None:
    made = served()
    made.spec["serving"]["replicas"] = 3
    made.settle(result)
    assert live(made)["spec"]["replicas"] == 3
    assert "3 of 3 groups" in available(made)["message"]
    made.spec["suspend"] = True
    made.step()
    assert live(made)["spec"]["replicas"] == 0
    assert available(made)["reason"] == "Suspended"


@pytest.mark.parametrize(
    ("part", "status", "reason"),
    [
        ("worker", waiting("ErrImageNeverPull", "absent"), "ImagePullFailed"),
        ("leader", waiting("ErrImageNeverPull", "absent"), "ImagePullFailed"),
        ("worker", {"phase": "Running"}, "Starting"),
    ],
)
def test_available_reports_why_a_pod_of_a_group_is_not_ready(
    part: str, status: dict[str, Any], reason: str
) -> None:
    made = served()
    live(made)["status"]["readyReplicas"] = 0
    pod(made, part, f"pair-group-0-{part}", status)
    made.step()
    assert available(made)["reason"] == reason
    assert f"pair-group-0-{part}" in available(made)["message"]


def test_pod_of_another_repository_makes_counts_stale() -> None:
    made = served()
    pod(made, "leader", "pair-group-0", {"phase": "Running"}, **{names.REPOSITORY: "0" * 16})
    made.step()
    assert available(made)["status"] == "False"


def test_missing_key_is_created_again() -> None:
    made = served()
    assert not any(o["kind"] == "Secret" for o in made.step().apply)
    # No status names the missing Secret of a volume: the container stays in ContainerCreating.
    missing = waiting("ContainerCreating", "") | {"startTime": "2026-01-02T03:03:30Z"}
    pod(made, "worker", "pair-group-0-1", missing)
    assert not any(o["kind"] == "Secret" for o in made.step().apply)
    made.pods[-1]["status"]["startTime"] = "2026-01-02T03:02:30Z"
    assert any(o["kind"] == "Secret" for o in made.step().apply)


def test_live_revision_keeps_its_gpu_product_during_a_build() -> None:
    """Engines run on the product that they were built for, also during the next build."""
    for made in (served(), served(1)):
        product = made.spec["gpu"]["product"]
        made.spec["gpu"]["product"] = "NVIDIA-H200"
        made.spec["serving"]["replicas"] = 2
        (old,) = [o for o in made.step().apply if o["kind"] in ("Deployment", "LeaderWorkerSet")]
        assert old["spec"]["replicas"] == 2
        spec = old["spec"]
        spec = spec.get("leaderWorkerTemplate", {}).get("workerTemplate") or spec["template"]
        assert spec["spec"]["nodeSelector"]["nvidia.com/gpu.product"] == product


def test_replicas_count_while_a_group_is_being_replaced_by_a_deployment() -> None:
    made = served()
    made.spec["serving"]["nodesPerReplica"] = 1
    made.spec["target"]["parallelism"]["pipeline"] = 1
    for _ in range(6):
        made.step()
        for name, job in list(made.jobs.items()):
            if "status" not in job:
                made.finish(name, result(job["metadata"]["labels"][names.COMPONENT]))
    assert made.deployment is not None
    assert made.group is not None
    assert made.cr["status"]["readyReplicas"] == 1


def test_old_workload_is_deleted_once_the_new_one_serves() -> None:
    made = served(1)
    assert made.group is None
    made.spec["serving"]["nodesPerReplica"] = 2
    made.spec["target"]["parallelism"]["pipeline"] = 2
    made.step()
    assert made.deployments
    made.settle(result)
    assert not made.deployments
    assert available(made)["reason"] == "PodsReady"

    made.spec["serving"]["nodesPerReplica"] = 1
    made.spec["target"]["parallelism"]["pipeline"] = 1
    made.step()
    assert made.group is not None
    made.settle(result)
    made.step()
    assert made.group is None
    assert group.served(made.observed()) is None
    assert "pair-group" not in made.config_maps


def test_the_served_repository_is_read_from_the_group() -> None:
    made = served()
    actual = group.served(made.observed())
    assert actual is not None
    assert actual.repository == made.cr["status"]["repository"]["hash"]
    assert actual.image == made.cr["status"]["serving"]["image"]


def test_parallelism_that_fits_no_group_is_refused() -> None:
    made = world()
    made.spec["target"]["parallelism"] = {"tensor": 4, "pipeline": 2}
    made.step()
    conditions = made.cr["status"]["conditions"][0]
    assert (conditions["type"], conditions["reason"]) == ("Accepted", "InvalidDevices")
    assert "set tensor x pipeline to 16" in conditions["message"]
