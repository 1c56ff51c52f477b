"""vLLM accepts the golden cases: well-known targets with their drafts, on both front ends."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec.api.model import SpeculativeModel
from support.golden_cases import CASES, Generated, generated, resource
from support.vllm_accepts import Accepted, Case, accepts
from support.vllm_tests import installed

Json = dict[str, Any]
_CORPUS = Path(__file__).parents[1] / "unit"
NAMES = [case for case in CASES if case.startswith("vllm-")]


def corpus(name: str) -> Json:
    read: Json = yaml.safe_load((_CORPUS / name).read_text("utf-8"))
    return {repository: case["config"] for repository, case in read.items()}


PUBLIC = corpus("public_configurations.yaml")
CHECKPOINTS = corpus("checkpoints/targets.yaml") | corpus("checkpoints/heads.yaml")
# The corpus has these two without the fields that they share with others of their kind.
CHECKPOINTS["Qwen/Qwen3-0.6B"] = CHECKPOINTS["Qwen/Qwen3-32B"] | PUBLIC["Qwen/Qwen3-0.6B"]
CHECKPOINTS["Qwen/Qwen2.5-7B-Instruct"] = {
    **PUBLIC["Qwen/Qwen2.5-7B-Instruct"],
    "max_position_embeddings": 32768,
    "model_type": "qwen2",
    "torch_dtype": "bfloat16",
}


def configurations(case: Generated, sources: Json) -> dict[str, str]:
    """Return the published config.json of each checkpoint of a case, by its path in the pod."""
    return {
        f"/models/checkpoints/{entry['digest']}/config.json": json.dumps(
            CHECKPOINTS[sources[entry["role"]].hugging_face.repo]
        )
        for entry in case.status["models"]
    }


def as_started(name: str) -> Case:
    """Return the arguments or the command with which the server of a case starts."""
    case = generated(name)
    files = configurations(case, SpeculativeModel.parse(resource(name)).sources)
    if (written := case.repository.get("vllm_model/1/model.json")) is not None:
        return Case(json.loads(written), files=files)
    (pod,) = [spec for name, spec in case.pods() if "-deployment-" in name]
    (command,) = [c["command"] for c in pod["containers"] if c["name"] == "server"]
    _, *own = command[command.index("vllm.entrypoints.openai.api_server") :]
    options = own[own.index("--config") + 1]
    return Case(command=own, files={**files, options: case.repository["options.yaml"]})


@pytest.mark.vllm(gibibytes=2)
def test_golden_cases_are_accepted(tmp_path: Path) -> None:
    results = accepts(installed(), [as_started(name) for name in NAMES], tmp_path)
    for name, result in zip(NAMES, results, strict=True):
        assert isinstance(result, Accepted), f"{name}: {result}"
        plan = generated(name).status["plan"]
        values = result.values
        assert values["speculative_config"]["num_speculative_tokens"] == plan["maxDraftTokens"]
        assert values["parallel_config"]["tensor_parallel_size"] == plan["gpusPerPod"]
        assert values["model_config"]["max_model_len"] == plan["limits"]["target"]["maxSeqLen"]
        size = values["cache_config"]["kv_cache_memory_bytes"]
        assert size % plan["memory"]["kvTokens"]["target"] == 0
