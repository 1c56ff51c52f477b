"""Variables that containers of the server's image have: no telemetry, and MPI for the LLM API."""

from collections.abc import Iterator
from typing import Any

import pytest

from specdec import servers
from specdec.api.model import SpeculativeModel
from specdec.desired import serving
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.triton import launch
from specdec.triton.layout import PLAIN, Launch, Mode
from support.golden_cases import CASES, generated
from support.simulated_cluster import resource

QUIET = {"TRTLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
SPAWNING = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PMIX_MCA_gds": "hash",
}


def containers(case: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the containers of a case that run the server's image, each with its place."""
    made = generated(case)
    for place, pod in made.pods():
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            if container["image"] == made.status["plan"]["image"]:
                yield f"{place} {container['name']}", container


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


@pytest.mark.parametrize("case", CASES)
def test_no_container_of_the_servers_image_sends_usage_data(case: str) -> None:
    """Releases after 1.2 report their use to NVIDIA unless one of these variables is 1.

    Upstream reads TRTLLM_NO_USAGE_STATS and DO_NOT_TRACK in `tensorrt_llm/usage/usage_lib.py`.
    """
    own_image = dict(containers(case))
    assert any(place.endswith(" server") for place in own_image)
    for place, container in own_image.items():
        own = variables(container)
        assert {name: own.get(name) for name in QUIET} == QUIET, place


@pytest.mark.parametrize("case", CASES)
def test_no_container_of_the_servers_image_gets_gpus_that_it_did_not_request(case: str) -> None:
    """NVIDIA's images set NVIDIA_VISIBLE_DEVICES to all, and its container runtime follows."""
    for place, container in containers(case):
        resources = container.get("resources", {})
        if not resources.get("claims") and not any("/" in n for n in resources.get("limits", {})):
            assert variables(container).get("NVIDIA_VISIBLE_DEVICES") == "void", place


def test_a_resource_cannot_turn_usage_data_on() -> None:
    cr = resource()
    cr["spec"]["serving"] = {"env": [{"name": "DO_NOT_TRACK", "value": "0"}]}
    volume = Volume("models", "abc", single_node=False)
    made = serving.deployment(SpeculativeModel.parse(cr), Revision("a" * 64, "image"), volume, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    assert [e["value"] for e in server["env"] if e["name"] == "DO_NOT_TRACK"] == ["1"]


@pytest.mark.parametrize("name", ["llm_api", "trtllm_serve"])
def test_ranks_of_the_llm_api_may_outnumber_cores_and_are_bound_to_none(name: str) -> None:
    """The LLM API spawns its ranks with MPI_Comm_spawn, without mpirun and its options.

    Open MPI then counts the cores that it sees as slots, refuses further ranks (MPI_ERR_SPAWN),
    and binds each rank to one core. Open MPI 4 reads OMPI_MCA_*, Open MPI 5 PRTE_MCA_* and
    PMIX_MCA_*. Upstream's model of the LLM API keeps these variables: it clears only those of a
    running MPI job, and names OMPI_MCA_* and PMIX_MCA_* as kept.
    """
    own = servers.kind(name).serving.environment(PLAIN)
    assert {key: own.get(key) for key in SPAWNING} == SPAWNING


def test_servers_of_engines_spawn_nothing() -> None:
    """Their mpirun has the same settings as options."""
    assert servers.kind("bls").serving.environment(PLAIN) == {}
    leader = Launch(Mode.LEADER, 2)
    assert set(SPAWNING) & set(launch.environment(leader)) == {"PMIX_MCA_gds"}
