"""Attention heads that the GPUs of the spec cannot share are refused before anything is served.

TensorRT-LLM's attention asserts that the tensor parallelism divides the heads, and
`duplicate_kv_weight` (tensorrt_llm/_torch/models/modeling_utils.py) that one of key/value heads
and tensor parallelism divides the other.
"""

from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.pipeline.validation import compatibility, parallelism
from support.checkpoint_facts import by_role
from unit.backends.pytorch_cases import put, pytorch
from unit.pipeline.public import models, pair, spec


def codes(model: SpeculativeModel, facts: dict[str, Any]) -> list[tuple[str, str]]:
    verdict = compatibility.judge(model, by_role(facts))
    return [(str(f.code), f.message) for f in verdict.refused]


@pytest.mark.parametrize(
    ("name", "tensor", "able"),
    [
        ("llama-3.1-8b", 8, ""),
        ("llama-3.1-8b", 32, ""),
        ("llama-3.1-8b", 3, "1, 2, 4, 8, 16, 32"),
        ("llama-3.1-8b", 6, "1, 2, 4, 8, 16, 32"),
        # 28 heads and 4 key/value heads.
        ("qwen2-7b", 8, "1, 2, 4, 28"),
        ("qwen2-7b", 7, "1, 2, 4, 28"),
        ("vicuna-13b", 5, ""),
    ],
)
def test_tensor_parallelism_splits_heads_and_key_value_heads(
    name: str, tensor: int, able: str
) -> None:
    model = pytorch("NGram", "1.2.1")
    put(model, "target.parallelism.tensor", tensor)

    refused = codes(SpeculativeModel.parse(model), {"target": models()[name]["config"]})

    assert [code for code, _ in refused] == (["HeadsNotDivisible"] if able else [])
    assert all(message.endswith(f"set it to one of {able}") for _, message in refused)


def test_draft_in_the_processes_of_the_target_is_split_like_it() -> None:
    model = pytorch("DraftTarget", "1.2.1")
    put(model, "target.parallelism.tensor", 4)
    facts = {"target": {"heads": 64, "kvHeads": 8}, "draft": {"heads": 14, "kvHeads": 2}}

    ((code, message),) = codes(SpeculativeModel.parse(model), facts)

    assert code == "HeadsNotDivisible"
    assert "parallelism.tensor 4 cannot split the draft, which has 14 attention heads" in message


def test_draft_with_an_engine_has_its_own_parallelism() -> None:
    model = pair("NVIDIA-H100-80GB-HBM3", spec(tensor=4), spec(tensor=1))
    facts = {"target": {"heads": 64, "kvHeads": 8}, "draft": {"heads": 14, "kvHeads": 2}}

    assert codes(model, facts) == []


def test_attention_data_parallelism_splits_no_heads() -> None:
    model = pytorch("NGram", "1.2.1")
    put(model, "target.parallelism.tensor", 3)
    put(model, "runtime.arguments", {"enable_attention_dp": True})

    facts = {"target": models()["llama-3.1-8b"]["config"]}
    assert codes(SpeculativeModel.parse(model), facts) == []


def test_latent_attention_has_no_key_value_heads_to_split() -> None:
    assert parallelism.fits(8, 128, 128)
    model = pytorch("MTP", "1.2.1")
    put(model, "target.parallelism.tensor", 16)
    facts = {"heads": 128, "kvHeads": 1, "cacheWidth": 576, "nextTokenLayers": 1}

    assert codes(SpeculativeModel.parse(model), {"target": facts}) == []
