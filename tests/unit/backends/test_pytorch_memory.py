"""The memory of the LLM API with attention data parallelism.

Known from TensorRT-LLM's sources: attention modules, dense layers, embedding and projection of a
rank are whole (`mapping.enable_attention_dp` in tensorrt_llm/_torch/modules/attention.py and in
modeling_qwen3.py), and only routed experts are divided. Each rank has a cache of its own.
"""

from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Footprint
from specdec.backends.pytorch import memory
from specdec.jobs import configuration_facts, parameter_count
from support.checkpoint_facts import stated
from unit.backends.pytorch_cases import put, pytorch
from unit.mixtures import QWEN3_MOE
from unit.pipeline.planned_memory import planned
from unit.pipeline.public import checkpoint

GIB = 1 << 30


def mixture(**more: Any) -> Checkpoint:
    facts = {
        "architecture": "Qwen3MoeForCausalLM",
        "vocabSize": 151936,
        "hiddenSize": 2048,
        "intermediateSize": 6144,
        "layers": 48,
        "heads": 32,
        "kvHeads": 4,
        "headDim": 128,
        "parameters": parameter_count.parameters(QWEN3_MOE),
        **configuration_facts.checkpoint(QWEN3_MOE).shown(),
        **more,
    }
    return Checkpoint("target", "a" * 64, "", 61 * 10**9, stated(facts))


def resource(tensor: int, *, attention_data: bool) -> SpeculativeModel:
    cr = put(pytorch("NGram"), "target.parallelism.tensor", tensor)
    put(cr, "gpu.product", "NVIDIA-H100-80GB-HBM3")
    if attention_data:
        put(cr, "runtime.arguments", {"enable_attention_dp": True})
    return SpeculativeModel.parse(cr)


def need(target: Checkpoint, tensor: int, *, attention_data: bool) -> Footprint:
    model = resource(tensor, attention_data=attention_data)
    return memory.footprints(model, {"target": target})["target"]


def test_attention_data_parallelism_divides_routed_experts_alone() -> None:
    one = need(mixture(), 1, attention_data=False)
    split = need(mixture(), 4, attention_data=False)
    whole = need(mixture(), 4, attention_data=True)

    experts = 2 * (mixture().facts.expert_parameters or 0)
    assert whole.parts["Weights"] == one.parts["Weights"] - experts * 3 // 4
    assert whole.parts["Weights"] > split.parts["Weights"]
    # Experts read the tokens of all ranks.
    assert whole.parts["Activations"] > one.parts["Activations"]


def test_dense_model_is_whole_on_each_rank_of_attention_data_parallelism() -> None:
    target = checkpoint("target", "llama-3.1-8b")

    one = need(target, 1, attention_data=False)
    whole = need(target, 4, attention_data=True)

    assert whole.parts["Weights"] == one.parts["Weights"]
    assert whole.parts["Activations"] == one.parts["Activations"]


def test_cache_of_a_rank_has_all_heads_with_attention_data_parallelism() -> None:
    target = checkpoint("target", "llama-3.1-8b")

    assert need(target, 4, attention_data=False).kv_per_token == 32 << 10
    assert need(target, 4, attention_data=True).kv_per_token == 128 << 10


def test_plan_refuses_what_fits_only_where_attention_is_split() -> None:
    """The plan ignored the argument: 141 GB of Llama 70B on each rank passed for 4 x 80 GB."""
    target = {"target": checkpoint("target", "llama-3.1-70b")}

    split = planned(resource(4, attention_data=False), target)
    whole = planned(resource(4, attention_data=True), target)

    assert [c.reason for c in split.conditions] == ["SufficientGpuMemory"]
    assert [c.reason for c in whole.conditions] == ["InsufficientGpuMemory"]


@pytest.mark.parametrize("parameters", [None, 0])
def test_mixture_of_unknown_experts_is_not_planned_with_attention_data_parallelism(
    parameters: int | None,
) -> None:
    """An earlier release read no number of expert parameters."""
    target = mixture(expertParameters=parameters)
    model = resource(4, attention_data=True)

    assert memory.footprints(model, {"target": target}) == {}
    assert "target" in memory.footprints(resource(4, attention_data=False), {"target": target})
