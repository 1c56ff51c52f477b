"""The copy of packages that are too old in NVIDIA's images: which pods have it, and how.

Upstream's evidence: Triton's build (`build.py` and `python/openai/requirements.txt` of the server)
installs openai 1.107.3 last in the images 26.03 to 26.07. TensorRT-LLM 1.2.x imports
`PartReasoningText` (`tensorrt_llm/serve/responses_utils.py`, imported by
`_torch/pyexecutor/py_executor.py`), which openai has from 1.108.1 on. NVIDIA's guide for
Qwen2.5-VL in the tutorials warns that no llmapi model loads.
"""

import re
from pathlib import Path
from typing import Any

import image_packages
import pytest

from specdec.desired import packages
from specdec.tools.dry_run.summary import summary
from specdec.triton.launch import program_path
from support.golden_cases import CASES, generated
from support.planned_samples import planned
from support.simulated_cluster import IMAGES, settled
from unit.backends.pytorch_cases import Json, put, pytorch

DOCKERFILE = (Path(__file__).parents[3] / "Dockerfile").read_text("utf-8")


def server_pod(cr: Json) -> Json:
    world = settled(cr)
    (body,) = [b for (kind, _), b in world.ever_applied.items() if kind == "Deployment"]
    result: Json = body["spec"]["template"]["spec"]
    return result


def copies(pod: Json) -> list[Json]:
    return [c for c in pod.get("initContainers", ()) if c["name"] == packages.NAME]


def test_a_server_of_the_llm_api_gets_the_copy_before_it_starts() -> None:
    pod = server_pod(pytorch("NGram", "1.2.1"))
    (copy,) = copies(pod)
    assert pod["initContainers"][0] == copy
    assert copy["image"] == IMAGES.operator
    assert "restartPolicy" not in copy
    (source,) = re.findall(r"--target (/\S+)", DOCKERFILE)
    assert copy["command"] == ["cp", "-R", f"{source}/.", image_packages.FOLDER]
    (server,) = pod["containers"]
    mounts = {m["name"]: m for m in server["volumeMounts"]}
    assert mounts["packages"] == packages.MOUNT
    assert packages.MOUNT["mountPath"] == image_packages.FOLDER == packages.FOLDER
    assert not program_path("").startswith(packages.FOLDER)
    (volume,) = [v for v in pod["volumes"] if v["name"] == "packages"]
    assert volume["emptyDir"] == {"sizeLimit": "64Mi"}
    assert copy["resources"]["requests"] == copy["resources"]["limits"]


def test_the_plan_shows_no_sidecar_for_a_container_that_ends() -> None:
    (server,) = summary(planned("pytorch-ngram"))["servers"]
    assert server["sidecars"] == []


@pytest.mark.parametrize(
    "cr",
    [
        pytest.param(pytorch("NGram", "1.1.0"), id="a release that needs none"),
        pytest.param(
            put(pytorch("NGram", "1.2.1"), "runtime.frontend", "TrtllmServe"),
            id="an image of NVIDIA that is whole",
        ),
    ],
)
def test_other_servers_get_none(cr: Json) -> None:
    pod = server_pod(cr)
    assert copies(pod) == []
    assert all(volume["name"] != packages.NAME for volume in pod["volumes"])


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("tensorrt-")])
def test_a_build_in_an_image_of_1_2_gets_the_copy_and_its_servers_none(case: str) -> None:
    """A program of a build imports TensorRT-LLM's package; a server of engines does not."""
    made = generated(case)
    newer = made.status["plan"]["version"] == "1.2.1"
    pods: dict[str, Any] = dict(made.pods())
    builds = [pod for place, pod in pods.items() if "-job-engine-" in place]
    assert builds
    for pod in builds:
        assert len(copies(pod)) == newer
        (build,) = pod["containers"]
        assert (packages.MOUNT in build["volumeMounts"]) == newer
    assert not any(copies(pod) for place, pod in pods.items() if "-job-" not in place)
