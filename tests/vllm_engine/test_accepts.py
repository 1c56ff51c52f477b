"""vLLM's own classes accept what they should, on a simulated node of GPUs, and refuse the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import vllm_wheel
from support.shipped_pair import PAIR
from support.vllm_accepts import Accepted, Case, Refused, accepts
from support.vllm_tests import installed

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
HEADS = LLAMA | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
FILES = {
    "/models/target/config.json": json.dumps(LLAMA),
    "/models/heads/config.json": json.dumps(HEADS),
}
EAGLE3 = {"method": "eagle3", "model": "/models/heads", "num_speculative_tokens": 3}
LARGE = {"model": "/models/target", "tensor_parallel_size": 4, "max_model_len": 8192}
Results = dict[str, Accepted | Refused]
CASES = {
    "pair": Case(
        {
            "model": str(PAIR / "target"),
            "kv_cache_memory_bytes": 1 << 26,
            "speculative_config": {
                "method": "draft_model",
                "model": str(PAIR / "draft"),
                "num_speculative_tokens": 4,
            },
        }
    ),
    "large": Case(
        LARGE | {"quantization": "fp8", "kv_cache_dtype": "fp8", "speculative_config": EAGLE3},
        files=FILES,
    ),
    "command": Case(
        command=[
            *("--config", "/models/options.yaml", "--served-model-name", "llama"),
            *("--speculative-config", json.dumps(EAGLE3)),
        ],
        files=FILES | {"/models/options.yaml": "model: /models/target\ntensor-parallel-size: 4\n"},
    ),
    "unknown argument": Case({"model": str(PAIR / "target"), "nonsense": 1}),
    "unknown option": Case(command=["--model", str(PAIR / "target"), "--nonsense"]),
    "three GPUs": Case(LARGE | {"tensor_parallel_size": 3}, files=FILES),
    "unknown method": Case(
        {"model": str(PAIR / "target"), "speculative_config": EAGLE3 | {"method": "nonsense"}}
    ),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(version, marks=pytest.mark.vllm(gibibytes=2, version=version))
        for version in vllm_wheel.VERSIONS
    ],
)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return the results of all cases in one process of a version."""
    checked = accepts(
        installed(request.param), [*CASES.values()], tmp_path_factory.mktemp("accepts")
    )
    return dict(zip(CASES, checked, strict=True))


def _values(result: Accepted | Refused) -> Any:
    assert isinstance(result, Accepted), result
    return result.values


def _error(result: Accepted | Refused) -> str:
    assert isinstance(result, Refused), result
    return result.error


def test_pair_with_its_draft_is_accepted(results: Results) -> None:
    values = _values(results["pair"])
    speculation = values["speculative_config"]
    assert (speculation["method"], speculation["num_speculative_tokens"]) == ("draft_model", 4)
    assert values["cache_config"]["kv_cache_memory_bytes"] == 1 << 26
    assert values["model_config"]["max_model_len"] == 256


def test_values_for_gpus_alone_are_accepted(results: Results) -> None:
    values = _values(results["large"])
    assert values["parallel_config"]["tensor_parallel_size"] == 4
    assert values["cache_config"]["cache_dtype"] == "fp8"
    assert values["model_config"]["quantization"].startswith("fp8")
    assert values["speculative_config"]["draft_tensor_parallel_size"] == 4


def test_command_line_with_a_file_of_options_is_accepted(
    results: Results,
) -> None:
    result = results["command"]
    values = _values(result)
    assert isinstance(result, Accepted)
    assert result.options["served_model_name"] == ["llama"]
    assert values["parallel_config"]["tensor_parallel_size"] == 4
    assert values["speculative_config"]["method"] == "eagle3"


def test_refusals_are_those_of_vllm(results: Results) -> None:
    assert "unexpected keyword argument 'nonsense'" in _error(results["unknown argument"])
    assert _error(results["unknown option"]) == "unrecognized arguments: --nonsense"
    assert "must be divisible by tensor parallel size (3)" in _error(results["three GPUs"])
    assert "nonsense" in _error(results["unknown method"])


@pytest.mark.vllm(gibibytes=2)
def test_cpu_has_no_simulated_gpu(tmp_path: Path) -> None:
    """Without GPUs, vLLM resolves values for its CPU platform: other blocks, for example."""
    (result,) = accepts(installed(), [CASES["pair"]], tmp_path, gpus=0)
    assert _values(result)["cache_config"]["block_size"] == 128
