"""The PyTorch backend: its `model.yaml` by version, and its repository."""

import pytest
import yaml

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.pytorch import BACKEND, generations
from support.llm_api import llm_api_differences
from support.published_layouts import parse
from unit.backends.pytorch_cases import (
    EVERY,
    EXPECTED,
    ROLES,
    configuration,
    errors,
    files,
    problem,
    put,
    pytorch,
)


@pytest.mark.parametrize(("version", "method"), EVERY)
def test_a_generation_spells_a_method_its_own_way(version: str, method: str) -> None:
    cr = pytorch(method, version)
    assert problem(cr) == ""
    written = configuration(cr)
    paths = {role.upper(): f"/models/checkpoints/{digest}" for role, digest in ROLES.items()}
    expected = {k: paths.get(v, v) for k, v in EXPECTED[version][method].items()}
    assert written["speculative_config"] == expected
    assert errors(written, version) == []


def test_every_served_version_and_method_is_in_the_table() -> None:
    row = support("PyTorch")
    served = {
        (v, m) for v in row.versions for m in row.methods if row.serves(m, v) and m != "None"
    }
    assert served == set(EVERY)
    for version, method in EVERY:
        assert method in generations.of(version).methods


@pytest.mark.parametrize(("older", "newer"), [("1.1.0", "1.3.0"), ("1.2.1", "1.3.0")])
@pytest.mark.parametrize("method", ["DraftTarget", "Eagle3", "NGram"])
def test_a_schema_refuses_the_spelling_of_another_generation(
    older: str, newer: str, method: str
) -> None:
    same = EXPECTED[older][method] == EXPECTED[newer][method]
    assert bool(errors(configuration(pytorch(method, older)), newer)) != same
    assert bool(errors(configuration(pytorch(method, newer)), older)) != same


@pytest.mark.parametrize("version", support("PyTorch").versions)
def test_a_target_alone_has_no_speculation(version: str) -> None:
    written = configuration(pytorch("None", version))
    assert "speculative_config" not in written
    assert errors(written, version) == []


def test_files_state_batch_size_and_transaction_policy_alike() -> None:
    for streaming in (True, False):
        cr = pytorch("NGram", serving={"streaming": streaming})
        made = files(cr)
        config = parse(made["tensorrt_llm/config.pbtxt"])
        assert llm_api_differences(config) == []
        assert f"decoupled: {str(streaming).lower()}" in made["tensorrt_llm/config.pbtxt"]
        assert "max_batch_size: 0" in made["tensorrt_llm/config.pbtxt"]
        own = yaml.safe_load(made["tensorrt_llm/1/model.yaml"])["triton_config"]
        assert (own["decoupled"], own["max_batch_size"]) == (streaming, 0)


def test_options_are_rendered_where_a_version_has_them() -> None:
    cr = pytorch("Eagle3", "1.3.0")
    put(cr, "speculation.eagle3.dynamicTree", {"topK": 8, "maxTotalTokens": 24})
    schedule = [{"batchSize": 1, "draftTokens": 5}, {"batchSize": 16, "draftTokens": 0}]
    put(cr, "speculation.draftLengthByLoad.schedule", schedule)
    written = configuration(cr)["speculative_config"]
    assert written["draft_len_schedule"] == {1: 5, 16: 0}
    assert (written["use_dynamic_tree"], written["max_total_draft_tokens"]) == (True, 24)
    assert errors(configuration(cr), "1.3.0") == []

    cr = pytorch("MTP", "1.3.0")
    put(cr, "speculation.mtp.suffixMatching", {"threshold": 6, "globalPool": True})
    put(cr, "speculation.draftLengthByLoad.maxConcurrency", 8)
    written = configuration(cr)["speculative_config"]
    assert written["sa_config"] == {"threshold": 6, "enable_global_pool": True}
    assert written["max_concurrency"] == 8
    assert errors(configuration(cr), "1.3.0") == []


@pytest.mark.parametrize(
    ("percent", "accepted"), [(101, 0.01), (120, 0.2), (125, 0.25), (250, 1.5)]
)
def test_a_threshold_of_the_acceptance_length_counts_accepted_draft_tokens(
    percent: int, accepted: float
) -> None:
    """`_torch/speculative/speculation_gate.py` of 1.1 and 1.2 averages "accepted draft tokens per
    iteration over the last N completed requests": the tokens of a step without the target's own.
    """
    threshold = {"window": 9, "lengthPercent": percent}
    cr = put(pytorch("Eagle3"), "speculation.acceptanceThreshold", threshold)
    written = configuration(cr)["speculative_config"]
    assert (written["acceptance_window"], written["acceptance_length_threshold"]) == (9, accepted)
    assert errors(configuration(cr), "1.2.1") == []


def test_newer_releases_have_a_threshold_of_the_acceptance_rate() -> None:
    """The gate of 1.3 averages "true acceptance-rate samples over the last N speculation-enabled
    decoding iterations".
    """
    cr = pytorch("Eagle3", "1.3.0")
    put(cr, "speculation.acceptanceRateThreshold", {"windowSteps": 500, "ratePercent": 15})
    assert problem(cr) == ""
    written = configuration(cr)["speculative_config"]
    assert written["acceptance_rate_window_size"] == 500
    assert written["acceptance_rate_threshold"] == 0.15
    assert errors(configuration(cr), "1.3.0") == []


def test_caches_and_limits_are_those_of_the_spec() -> None:
    cr = pytorch("NGram")
    assert "max_tokens" not in configuration(cr)["kv_cache_config"]
    assert configuration(cr, kv_tokens={"target": 640})["kv_cache_config"]["max_tokens"] == 640
    put(cr, "target.kvCache", {"memoryPercent": 40, "reuse": False, "hostMemoryMiB": 2})
    put(cr, "target.quantization.kvCache", "FP8")
    put(cr, "runtime.chunkedContext", True)
    written = configuration(cr)
    assert written["kv_cache_config"] == {
        "enable_block_reuse": False,
        "free_gpu_memory_fraction": 0.4,
        "host_cache_size": 2 << 20,
        "dtype": "fp8",
    }
    assert written["enable_chunked_prefill"] is True
    assert errors(written, "1.2.1") == []


def test_adapters_are_inputs_of_releases_whose_model_reads_them() -> None:
    """`execute` of 1.2.1 has no LoRA request ("TODO: Verify Lora"), so the base model would
    answer. `helpers.get_lora_request_from_request` came in August 2026.
    """
    cr = put(pytorch("None", "1.3.0"), "runtime.parameters", {"enable_lora": "true"})
    assert problem(cr) == ""
    assert configuration(cr)["enable_lora"] is True
    assert errors(configuration(cr), "1.3.0") == []
    config = parse(files(cr)["tensorrt_llm/config.pbtxt"])
    inputs = {tensor.name for tensor in config.input}
    assert {"lora_id", "lora_name", "lora_path", "lora_ckpt_source"} <= inputs
    assert llm_api_differences(config) == []


def test_newer_releases_take_penalties_while_they_draft() -> None:
    """Since pull request 17701 (August 2026) requests with penalties are refused otherwise."""
    cr = put(pytorch("MTP", "1.3.0"), "speculation.penalties", True)
    assert problem(cr) == ""
    assert configuration(cr)["speculative_config"]["enable_penalty"] is True
    assert errors(configuration(cr), "1.3.0") == []


def test_the_overlap_scheduler_is_off_only_with_ngram() -> None:
    """`SpeculativeDecodingMode.support_overlap_scheduler` of 1.1 and 1.2 is true with drafts of
    models; for NGram the release itself turns the scheduler off.
    """
    written = {method: configuration(pytorch(method)) for method in ("DraftTarget", "NGram")}
    assert "disable_overlap_scheduler" not in written["DraftTarget"]
    assert written["NGram"]["disable_overlap_scheduler"] is True


def test_each_instance_has_gpus_of_its_own() -> None:
    cr = put(put(pytorch("NGram"), "runtime.instances", 2), "target.parallelism.tensor", 2)
    (server,) = BACKEND.servers(SpeculativeModel.parse(cr)).servers
    assert (server.gpus, server.launch.world_size) == (4, 1)
    text = files(cr)["tensorrt_llm/config.pbtxt"]
    assert '"0,1;2,3"' in text
    assert "count: 2" in text
    single = files(pytorch("NGram"))["tensorrt_llm/config.pbtxt"]
    assert "gpu_device_ids" not in single
