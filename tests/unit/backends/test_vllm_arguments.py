"""`spec.runtime.arguments` of backend VLLM."""

from typing import Any

import pytest

from specdec.api.matrix import support
from specdec.backends.vllm import arguments as table
from support.vllm_resources import arguments, problem, put, vllm

GIVEN: dict[str, Any] = {
    "attention_backend": "FLASHINFER",
    "cudagraph_capture_sizes": [1, 2, 4],
    "cpu_offload_gb": 1.5,
    "enable_expert_parallel": True,
    "eplb_config": {"window_size": 100},
    "optimization_level": 2,
    "performance_mode": "interactivity",
}


@pytest.mark.parametrize("version", support("VLLM").versions)
def test_arguments_reach_the_file(version: str) -> None:
    front = "VllmServe" if version == "0.32.0" else "Triton"
    cr = put(vllm("None", version, front), "runtime.arguments", GIVEN)
    assert problem(cr) == ""
    put(cr, "runtime.frontend", "Triton")
    assert {name: arguments(cr)[name] for name in GIVEN} == GIVEN


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_num_seqs": 9}, "spec.target.limits.maxBatchSize sets: remove it from arguments"),
        ({"speculative_config": {}}, "which spec.speculation sets"),
        ({"spec_model": "draft"}, "which spec.speculation sets"),
        ({"kv_cache_memory_bytes": 1}, "which spec.target.kvCache sets"),
        ({"kv_cache_dtype": "fp8"}, "which spec.target.quantization.kvCache sets"),
        ({"trust_remote_code": True}, "it lets vLLM import or run code"),
        ({"worker_extension_cls": "a.B"}, "it lets vLLM import or run code"),
        ({"logits_processors": ["a.B"]}, "it lets vLLM import or run code"),
        ({"load_format": "plugin"}, "it lets vLLM import or run code"),
        ({"kv_transfer_config": {}}, "it lets vLLM import or run code"),
        ({"hf_overrides": {}}, "it changes the model that the checkpoint describes"),
        ({"data_parallel_size": 2}, "the operator places processes on GPUs"),
        ({"allowed_local_media_path": "/"}, "reads no other path and no hub"),
        ({"enable_lora": True}, "no request to backend VLLM names an adapter"),
        ({"max_num_batched_token": 1}, "does not pass on to vLLM 0.27.1: use all2all_backend"),
        ({"enable_hc_sp": True}, "does not pass on to vLLM 0.27.1"),
        ({"max_long_partial_prefills": 1}, "does not pass on to vLLM 0.27.1"),
    ],
)
def test_arguments_are_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    message = problem(put(vllm("None"), "runtime.arguments", given))
    (name,) = given
    assert message.startswith(f"spec.runtime.arguments has {name}, ")
    assert sentence in message


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("0.27.1", {"enforce_eager": 1}, "is 1: set it to true or false"),
        ("0.27.1", {"cudagraph_capture_sizes": 4}, "is 4: set it to a list, or null"),
        ("0.27.1", {"optimization_level": "O2"}, 'is "O2": set it to a whole number'),
        ("0.27.1", {"generation_config": "/a"}, 'is "/a": set it to one of auto, vllm'),
        ("0.27.1", {"disable_cascade_attn": None}, "is null: set it to true or false"),
        ("0.32.0", {"disable_cascade_attn": 1}, "is 1: set it to true or false, or null"),
        ("0.27.1", {"moe_backend": "rdna3"}, 'is "rdna3": set it to one of aiter, auto, '),
    ],
)
def test_values_of_another_type_are_refused_by_version(
    version: str, given: dict[str, Any], expected: str
) -> None:
    front = "VllmServe" if version == "0.32.0" else "Triton"
    message = problem(put(vllm("None", version, front), "runtime.arguments", given))
    (name,) = given
    assert message.startswith(f"spec.runtime.arguments.{name} {expected}")


def test_values_of_a_newer_version_are_accepted_there() -> None:
    for given in ({"moe_backend": "rdna3"}, {"disable_cascade_attn": None}):
        cr = put(vllm("None", "0.32.0", "VllmServe"), "runtime.arguments", given)
        assert problem(cr) == ""


@pytest.mark.parametrize("version", support("VLLM").versions)
def test_no_name_is_set_by_a_field_too(version: str) -> None:
    for method in ("None", "DraftTarget", "NGram", "Eagle3"):
        ours = set(arguments(vllm(method, version), kv_tokens={"target": 1024}))
        assert not ours & set(table.table().known(version))
        assert ours <= set(table.table().fields)
