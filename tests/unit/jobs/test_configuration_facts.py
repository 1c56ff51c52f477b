"""Facts about experts, attention and quantization, from the configurations of public models."""

from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import configuration_facts, parameter_count
from specdec.jobs.inspection import inspect
from unit.jobs.checkpoints import config, write
from unit.jobs.test_public_checkpoints import TARGETS
from unit.mixtures import DEEPSEEK_R1, MIXTRAL, QWEN3_MOE


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (
            MIXTRAL,
            {"expertsPerToken": 2, "expertSize": 14336, "expertParameters": 45_097_156_608},
        ),
        (
            QWEN3_MOE,
            {"expertsPerToken": 8, "expertSize": 768, "expertParameters": 28_991_029_248},
        ),
        (
            DEEPSEEK_R1,
            {
                "nextTokenLayers": 1,
                "expertsPerToken": 8,
                "sharedExperts": 1,
                "expertSize": 2048,
                # 59 layers of 256 experts, one of them for the prediction of a further token.
                "expertParameters": 665_183_059_968,
                # 512 of keys and values, and 64 of the rotary embedding.
                "cacheWidth": 576,
                "headDim": 192,
            },
        ),
        ({"experts_per_token": 4}, {"expertsPerToken": 4}),
        ({"num_experts_per_tok": "two"}, {"expertsPerToken": None}),
        ({"kv_lora_rank": 512}, {"cacheWidth": None}),
    ],
)
def test_experts_and_attention_are_read(
    configuration: dict[str, Any], expected: dict[str, int | None]
) -> None:
    facts = configuration_facts.checkpoint(configuration).shown()
    assert {name: facts.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("configuration", "billions"),
    [
        # The model cards state 46.7, 30.5 and 671; the last leaves out 14 of the prediction layer.
        (MIXTRAL, 46.7),
        (QWEN3_MOE, 30.5),
        (DEEPSEEK_R1, 685),
    ],
)
def test_parameters_of_a_mixture_follow_from_its_configuration(
    configuration: dict[str, Any], billions: float
) -> None:
    counted = parameter_count.parameters(configuration)
    assert counted is not None
    assert counted / 1e9 == pytest.approx(billions, rel=0.005)


def test_parameters_of_a_dense_model_follow_from_its_configuration() -> None:
    dense = TARGETS["meta-llama/Llama-3.3-70B-Instruct"]["config"]
    assert parameter_count.parameters(dense) == pytest.approx(70.55e9, rel=0.001)


def test_fetch_job_reports_the_experts_of_a_token(tmp_path: Path) -> None:
    mixture = config(architectures=["MixtralForCausalLM"], num_experts_per_tok=2)
    assert inspect(write(tmp_path / "m", **{"config.json": mixture})).experts_per_token == 2


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "awq", "bits": 8}, "awq-8bit"),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_gptq"}, "auto-round"),
        ({"quant_method": "hqq", "quant_config": {"nbits": 8}}, "hqq-8bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes-8bit"),
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, "mxfp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8"),
        ({"bits": 4, "group_size": 64}, "mlx"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "layers.0.q_proj": {"quant_algo": "FP8"},
                    "layers.0.k_proj": {"quant_algo": "FP8"},
                    "layers.0.mlp.experts": {"quant_algo": "NVFP4"},
                    "layers.1": None,
                },
            },
            "NVFP4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 8, "type": "float"}},
                    "group_1": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}},
                    "group_2": {"weights": {"num_bits": "4"}},
                },
            },
            "nvfp4",
        ),
    ],
)
def test_quantization_is_read_in_every_spelling(stated: dict[str, Any], expected: str) -> None:
    name = configuration_facts.checkpoint(config(quantization_config=stated)).quantization
    assert name == expected
