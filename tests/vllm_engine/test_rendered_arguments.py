"""vLLM accepts what backend VLLM writes: each method, on both front ends, in each version."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec import servers
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.vllm import BACKEND
from specdec.servers.kind import Start
from support import vllm_heads, vllm_wheel
from support.vllm_accepts import Accepted, Case, accepts
from support.vllm_resources import EXPECTED, ROLES, arguments, files, put, vllm
from support.vllm_tests import installed

Json = dict[str, Any]
TARGET: Json = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
CONFIGURATIONS: dict[str, Json] = {
    "target": TARGET,
    "draft": TARGET | {"num_hidden_layers": 4},
    "heads": TARGET
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
    },
}
# By method, the configurations that differ.
OTHERS: dict[str, dict[str, Json]] = {
    "Eagle": {"heads": TARGET | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}},
    # As published: without a model_type.
    "Medusa": {"heads": {"medusa_num_heads": 5, "medusa_num_layers": 1, "hidden_size": 2048}},
    "MTP": {"target": vllm_heads.deepseek_config() | {"max_position_embeddings": 131072}},
    "PARD": {"draft": TARGET | {"num_hidden_layers": 4, "pard_token": 128255}},
    "DFlash": {
        "target": TARGET | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
        "heads": TARGET
        | {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "num_hidden_layers": 5,
            "block_size": 16,
            "dflash_config": {"mask_token_id": 128255, "target_layer_ids": [1, 7, 13]},
        },
    },
}


def checkpoints(method: str) -> dict[str, str]:
    """Return the configuration of each checkpoint of a method by its path."""
    return {
        f"/models/checkpoints/{ROLES[role]}/config.json": json.dumps(own)
        for role, own in (CONFIGURATIONS | OTHERS.get(method, {})).items()
    }


METHODS = ("None", *EXPECTED)


def served(method: str, version: str, frontend: str) -> Json:
    """Return a resource with a value in each field that becomes an argument."""
    cr = vllm(method, version, frontend)
    put(cr, "target.parallelism", {"tensor": 2})
    put(cr, "runtime.chunkedContext", False)
    put(cr, "target.dtype", "BFloat16")
    put(cr, "target.quantization", {"kvCache": "FP8"})
    put(cr, "target.kvCache", {"reuse": False, "memoryPercent": 80})
    put(cr, "target.limits", {"maxBatchSize": 8, "maxSeqLen": 4096, "maxNumTokens": 8192})
    if method != "None":
        put(cr, "speculation.draftLengthByLoad.maxConcurrency", 4)
    return cr


def on_triton(method: str, version: str) -> Case:
    return Case(arguments(served(method, version, "Triton")), files=checkpoints(method))


def on_own_server(method: str, version: str) -> Case:
    cr = served(method, version, "VllmServe")
    model = SpeculativeModel.parse(cr)
    ((name, text),) = files(cr).items()
    start = Start(
        launch=BACKEND.servers(model).servers[0].launch,
        directory="/models/repositories/a",
        checkpoint=f"/models/checkpoints/{ROLES['target']}",
        target=model.spec.target,
        name="served",
        version=version,
        exit_timeout_seconds=30,
        connection_age_seconds=600,
    )
    python, option, module, *command = servers.of(model).serving.command(start)
    assert (python, option) == ("python3", "-m"), module
    return Case(
        command=command, files={**checkpoints(method), f"/models/repositories/a/{name}": text}
    )


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.vllm(gibibytes=2, version=version))
        for version in vllm_wheel.VERSIONS
    ],
)
def test_rendered_arguments_are_accepted(version: str, tmp_path: Path) -> None:
    able = [method for method in METHODS if support("VLLM").serves(method, version)]
    cases = {
        f"{method} {front.__name__}": front(method, version)
        for method in able
        for front in (on_triton, on_own_server)
    }
    results = accepts(installed(version), [*cases.values()], tmp_path)
    assert len(results) == 2 * len(able)
    for (name, result), method in zip(
        zip(cases, results, strict=True), [each for each in able for _ in range(2)], strict=True
    ):
        assert isinstance(result, Accepted), f"{name}: {result}"
        values = result.values
        assert values["parallel_config"]["tensor_parallel_size"] == 2
        assert values["model_config"]["max_model_len"] == 4096
        assert values["scheduler_config"]["max_num_seqs"] == 8
        assert values["scheduler_config"]["enable_chunked_prefill"] is False
        assert values["cache_config"]["enable_prefix_caching"] is False
        assert values["cache_config"]["cache_dtype"] == "fp8"
        own = values.get("speculative_config")
        if method == "None":
            assert not own
            continue
        assert own
        assert own["method"] == EXPECTED[method]["method"]
        assert own["num_speculative_tokens"] == 5
        assert own["num_speculative_tokens_per_batch_size"] == [[1, 4, 5], [5, 8, 0]]
