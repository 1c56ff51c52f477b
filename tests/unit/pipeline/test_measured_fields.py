"""Whatever a measuring Job sends, or the servers run, is in the hash of its measurement."""

import copy
import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from specdec.api.model import SpeculativeModel
from specdec.desired import measurement
from support.simulated_cluster import World, resource, settled
from unit.backends.engine_key_fields import BUILD, NEITHER, RUN
from unit.backends.pytorch_cases import pytorch
from unit.pipeline.tensorrt import put, tensorrt

Json = dict[str, Any]
JOBS = ("verify", "benchmark")
# A replica more gives the same figures, but its counters cannot be read at one address any more.
UNMEASURED = {"planHash", "report", "metrics"}
FIELDS = {**BUILD, **RUN, **NEITHER}
# Fields that change the pods of a server, and not what the measurements report.
OTHER_POD_FIELDS = {
    # Where the image comes from, and who runs it.
    "runtime.pullPolicy",
    "runtime.pullSecrets",
    "pods.serviceAccountName",
    "pods.user",
    # Which nodes are allowed, and when pods start and stop.
    "storage.accessMode",
    "serving.tolerations",
    "serving.topologySpreadConstraints",
    "serving.priorityClassName",
    "serving.probes.startupBudgetSeconds",
    "serving.drain.timeoutSeconds",
    # A server fails with too little, and is no faster with more.
    "serving.sharedMemory",
    # Containers that no request of a measurement passes through.
    "serving.openAI",
    "serving.sidecars",
    "metadata.serverPods",
}
BASES = ("SingleServer", "TwoServers", "PyTorch", "Reference", "Lookahead", "FP8")
# Values that no base accepts: they need other fields too, or nothing is measured with them. The
# simulated cluster has no checkpoints with heads.
NOWHERE = {
    *(path for path in FIELDS if re.match(r"speculation\.(eagle|medusa|reDrafter)\.", path)),
    "serving.nodesPerReplica",
    # Its rounds reuse blocks, which only paged context attention can read.
    "speculation.draftTarget.draft.engine.pagedContextFmha",
    "speculation.draftTarget.draft.kvCache.reuse",
    "speculation.draftTarget.fastLogits",
    # Only backend VLLM has it, which is no base.
    "speculation.draftTarget.heterogeneousVocabulary",
    "storage.existingClaim",
    "suspend",
}


def base(topology: str) -> Json:
    measuring: Json = {"mode": "OnReady"}
    other = {**measuring, "baseline": {"modelRef": {"name": "plain"}}}
    if topology == "PyTorch":
        return pytorch("NGram", benchmark=other)
    if topology == "Reference":
        return resource(benchmark=measuring)
    if topology == "Lookahead":
        return put(tensorrt(topology, benchmark=other), "target.kvCache.reuse", False)
    cr = tensorrt(benchmark=measuring)
    if topology == "FP8":
        formats = {"method": "FP8", "kvCache": "FP8"}
        put(cr, "target.quantization", formats)
        put(cr, "speculation.draftTarget.draft.quantization", dict(formats))
    if topology == "TwoServers":
        put(cr, "speculation.draftTarget.topology", topology)
        put(cr, "speculation.draftTarget.placement", "Dedicated")
        put(cr, "target.parallelism.tensor", 2)
    return cr


def pods(world: World) -> list[Json]:
    """Return the specs of the servers' pods."""
    kinds = ("Deployment", "LeaderWorkerSet")
    bodies = [body for (kind, _), body in world.ever_applied.items() if kind in kinds]
    return [body["spec"]["template"]["spec"] for body in bodies]


def measured(cr: Json) -> dict[str, tuple[str, Json]]:
    """Return hash and requests of each measurement; empty if this backend refuses the resource."""
    try:
        SpeculativeModel.parse(cr)
        world = settled(cr)
    except (ValidationError, RuntimeError):
        return {}
    plans = {}
    for component in JOBS:
        for name in world.named(component):
            (container,) = world.jobs[name]["spec"]["template"]["spec"]["containers"]
            plan = json.loads(container["command"][-1])
            sent = {key: value for key, value in plan.items() if key not in UNMEASURED}
            sent["repository"] = world.cr["status"]["repository"]["hash"]
            sent["pods"] = pods(world)
            plans[component] = (plan["planHash"], sent)
    return plans


@pytest.mark.slow
def test_a_field_that_changes_requests_repository_or_pods_measures_again() -> None:
    """`NOWHERE` names each field that no base accepts: nothing is skipped silently."""
    accepted, silent = set(), []
    for name in BASES:
        before = measured(base(name))
        assert set(before) == set(JOBS), name
        for path, value in FIELDS.items():
            after = measured(put(base(name), path, copy.deepcopy(value)))
            accepted |= {path} if after else set()
            for component, (digest, sent) in after.items():
                old, known = before[component]
                if path in OTHER_POD_FIELDS:
                    sent = {**sent, "pods": known["pods"]}
                if digest == old and sent != known:
                    silent.append((name, component, path))
    assert silent == []
    assert set(FIELDS) - accepted == NOWHERE


@pytest.mark.parametrize("component", JOBS)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gpu.product", "NVIDIA-L4"),
        ("serving.env", [{"name": "OMP_NUM_THREADS", "value": "1"}]),
        ("serving.resources", {"limits": {"cpu": "1"}}),
        ("serving.nodeSelector", {"zone": "a"}),
    ],
)
def test_other_hardware_or_settings_of_the_pods_measure_again(
    path: str, value: Any, component: str
) -> None:
    """Without engines, the repository is the same on each GPU."""
    cr = put(base("Reference"), path, value)
    assert measured(cr)[component][0] != measured(base("Reference"))[component][0]


@pytest.mark.parametrize("which", ["verification_hash", "benchmark_hash"])
def test_replicas_over_several_nodes_measure_again(which: str) -> None:
    digest = getattr(measurement, which)
    crs = (base("SingleServer"), put(base("SingleServer"), "serving.nodesPerReplica", 2))
    hashes = {digest(SpeculativeModel.parse(cr), "repository", "image", 4) for cr in crs}
    assert len(hashes) == 2


@pytest.mark.parametrize("component", JOBS)
def test_more_replicas_do_not_measure_again(component: str) -> None:
    """An autoscaler sets them, also because of the load of a benchmark."""
    cr = put(base("Reference"), "serving.replicas", 3)
    assert measured(cr)[component][0] == measured(base("Reference"))[component][0]


@pytest.mark.parametrize("component", JOBS)
def test_with_two_servers_another_draft_length_measures_again(component: str) -> None:
    """The client of two servers sets it: neither server's repository has it."""
    cr = put(base("TwoServers"), "speculation.draftTokens", 2)
    assert measured(cr)[component][0] != measured(base("TwoServers"))[component][0]
