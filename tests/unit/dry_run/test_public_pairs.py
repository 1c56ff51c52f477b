"""Well-known targets with their drafts are planned from configurations, and none is refused."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.jobs import inspection
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.pipeline.validation import compatibility
from specdec.tools.dry_run import plan
from support.simulated_cluster import IMAGES
from unit.backends.pytorch_cases import pytorch
from unit.jobs.test_public_checkpoints import HEADS, TARGETS, written

Case = dict[str, Any]


def changed(case: Case, **config: Any) -> Case:
    return {**deepcopy(case), "config": {**case["config"], **config}}


# Qwen3-0.6B has the tokenizer of Qwen3-32B.
SMALL = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
# The published heads of gpt-oss-120b have the form of those of gpt-oss-20b.
LAYERS = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 33]}}
PAIRS: dict[str, tuple[str, int, dict[str, Case]]] = {
    "gpt-oss-120b with EAGLE-3": (
        "Eagle3",
        1,
        {
            "target": TARGETS["openai/gpt-oss-120b"],
            "heads": changed(HEADS["SpecForge EAGLE-3 of gpt-oss-20b"], **LAYERS),
        },
    ),
    "Qwen3-32B with Qwen3-0.6B": (
        "DraftTarget",
        2,
        {
            "target": TARGETS["Qwen/Qwen3-32B"],
            "draft": changed(TARGETS["Qwen/Qwen3-32B"], num_attention_heads=16, **SMALL),
        },
    ),
    "Llama 3.3 70B with EAGLE-3": (
        "Eagle3",
        4,
        {
            "target": TARGETS["meta-llama/Llama-3.3-70B-Instruct"],
            "heads": HEADS["RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"],
        },
    ),
    "DeepSeek-V3 with MTP": ("MTP", 8, {"target": TARGETS["deepseek-ai/DeepSeek-V3"]}),
}
BACKENDS = [(backend, name) for backend in ("PyTorch", "VLLM") for name in PAIRS]


def resource(backend: str, name: str) -> Case:
    method, tensor, _ = PAIRS[name]
    cr = pytorch(method, gpu={"product": "NVIDIA-H200"}, storage={"size": "2Ti"})
    cr["spec"]["target"] |= {"parallelism": {"tensor": tensor}}
    cr["spec"]["target"].pop("limits")
    if backend != "PyTorch":
        cr["spec"]["runtime"] = {"backend": backend}
    return cr


@pytest.mark.parametrize(("backend", "name"), BACKENDS)
def test_pair_is_planned_from_its_configurations(backend: str, name: str, tmp_path: Path) -> None:
    folders = {role: written(tmp_path / role, case) for role, case in PAIRS[name][2].items()}
    files = {role: folder / "config.json" for role, folder in folders.items()}

    planned = plan.make(resource(backend, name), IMAGES, files)

    assert planned.refusal == ""
    conditions = {item["type"]: item for item in planned.status["conditions"]}
    assert conditions["MemoryFits"]["reason"] == "SufficientGpuMemory"
    assert conditions["Compatible"]["status"] == "True"
    by_folder = plan.make(resource(backend, name), IMAGES, folders)
    assert by_folder.status == planned.status


@pytest.mark.parametrize(("backend", "name"), BACKENDS)
def test_plan_and_fetch_job_judge_a_pair_alike(backend: str, name: str, tmp_path: Path) -> None:
    folders = {
        role: written(tmp_path / role, case, weights=True) for role, case in PAIRS[name][2].items()
    }
    facts = {
        role: inspection.inspect(folder, ArtifactKind.of(role)) for role, folder in folders.items()
    }
    model = SpeculativeModel.parse(resource(backend, name))

    judged = [str(each.code) for each in compatibility.judge(model, facts).findings]

    files = {role: folder / "config.json" for role, folder in folders.items()}
    planned = plan.make(resource(backend, name), IMAGES, files)
    assert judged == [
        finding["code"]
        for entry in planned.status["models"]
        for finding in entry["facts"].get("findings", [])
    ]
