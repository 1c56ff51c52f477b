"""`spec.runtime.arguments` of the PyTorch backend."""

from typing import Any

import pytest

from specdec.api.matrix import support
from specdec.backends.pytorch import arguments
from specdec.backends.pytorch.configuration import ADAPTERS
from unit.backends.pytorch_cases import configuration, problem, put, pytorch

GIVEN = {
    "moe_expert_parallel_size": 4,
    "enable_attention_dp": True,
    "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 8]},
    "moe_config": {"backend": "TRTLLM"},
    "stream_interval": 4,
}


@pytest.mark.parametrize("version", support("PyTorch").versions)
def test_arguments_reach_the_file(version: str) -> None:
    cr = put(pytorch("MTP", version), "runtime.arguments", GIVEN)
    assert problem(cr) == ""
    written = configuration(cr)
    assert {name: written[name] for name in GIVEN} == GIVEN
    plain = configuration(pytorch("MTP", version))
    assert {name: value for name, value in written.items() if name not in GIVEN} == plain


def test_fields_win_over_arguments() -> None:
    """The rules refuse such arguments; the file would be right without them too."""
    cr = put(pytorch("None"), "runtime.arguments", {"max_batch_size": 999, "kv_cache_config": {}})
    assert configuration(cr) == configuration(pytorch("None"))


@pytest.mark.parametrize(
    ("method", "version", "given", "sentence"),
    [
        ("None", "1.2.1", {"max_batch_size": 9}, "spec.target.limits.maxBatchSize sets"),
        ("None", "1.2.1", {"kv_cache_config": {}}, "spec.target.kvCache sets: remove it from"),
        ("None", "1.2.1", {"enable_lora": True}, "spec.runtime.parameters sets"),
        (
            "None",
            "1.2.1",
            {"stream_intervall": 2},
            "does not pass on to TensorRT-LLM 1.2.1: use al",
        ),
        (
            "None",
            "1.1.0",
            {"sparse_attention_config": {}},
            "does not pass on to TensorRT-LLM 1.1.0",
        ),
        ("NGram", "1.2.1", {"disable_overlap_scheduler": False}, "method NGram needs as it is"),
        (
            "None",
            "1.2.1",
            {"trust_remote_code": True},
            "runs code of the checkpoint in the server",
        ),
        ("None", "1.2.1", {"guided_decoding_backend": "xgrammar"}, "can name a grammar: remove"),
        ("None", "1.2.1", {"moe_config": {"a": "x" * 9000}}, "has more than 8192 bytes"),
    ],
)
def test_arguments_are_refused_by_name(
    method: str, version: str, given: dict[str, Any], sentence: str
) -> None:
    message = problem(put(pytorch(method, version), "runtime.arguments", given))
    assert "spec.runtime.arguments has " in message
    assert sentence in message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"enable_attention_dp": "yes"}, 'is "yes": set it to true or false'),
        ({"enable_attention_dp": 1}, "is 1: set it to true or false"),
        ({"print_iter_log": None}, "is null: set it to true or false"),
        ({"stream_interval": "4"}, 'is "4": set it to a whole number from 1'),
        ({"stream_interval": 0}, "is 0: set it to a whole number from 1"),
        ({"stream_interval": True}, "is true: set it to a whole number from 1"),
        ({"moe_expert_parallel_size": 2.5}, "is 2.5: set it to a whole number, or null"),
        ({"batch_wait_max_tokens_ratio": 2}, "is 2: set it to a number from 0 to 1"),
        ({"attn_backend": ["TRTLLM"]}, 'is ["TRTLLM"]: set it to a text'),
        ({"tokenizer_mode": "fast"}, 'is "fast": set it to one of auto, slow'),
        ({"cuda_graph_config": True}, "is true: set it to an object, or null"),
    ],
)
def test_values_of_another_type_are_refused_with_the_values_to_set(
    given: dict[str, Any], expected: str
) -> None:
    """TensorRT-LLM reads the text "yes" as true, and the memory plan of specdec does not."""
    (name,) = given
    message = problem(put(pytorch("None"), "runtime.arguments", given))
    assert message == f"spec.runtime.arguments.{name} {expected}"


@pytest.mark.parametrize(
    "given",
    [
        {"cuda_graph_config": None},
        {"allreduce_strategy": "NCCL"},
        {"batch_wait_timeout_ms": 0.5},
        {"batch_wait_max_tokens_ratio": 1},
        {"moe_tensor_parallel_size": -1},
        {"attn_backend": "FLASHINFER"},
    ],
)
def test_values_of_the_type_are_accepted(given: dict[str, Any]) -> None:
    assert problem(put(pytorch("None"), "runtime.arguments", given)) == ""


@pytest.mark.parametrize("version", support("PyTorch").versions)
def test_no_name_is_set_by_a_field_too(version: str) -> None:
    for method in ("None", "DraftTarget", "NGram", "MTP"):
        ours = set(configuration(pytorch(method, version))) | {ADAPTERS}
        ours -= {"disable_overlap_scheduler", "return_perf_metrics"}
        assert not ours & set(arguments.table().known(version))
        for name in ours:
            cr = put(pytorch(method, version), "runtime.arguments", {name: 1})
            assert f"has {name}, which spec." in problem(cr)
