"""Backend VLLM: the arguments of vLLM's engine on both front ends, and its pods."""

import pytest
import yaml

from specdec import backends
from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.vllm import BACKEND
from support.checkpoint_facts import stated
from support.published_layouts import parse
from support.simulated_cluster import FACTS, settled
from support.vllm_resources import (
    EXPECTED,
    ROLES,
    arguments,
    files,
    options,
    problem,
    put,
    vllm,
)

FRONTS = ("Triton", "VllmServe")
METHODS = ("None", *EXPECTED)


@pytest.mark.parametrize("method", EXPECTED)
def test_a_method_is_written_as_vllm_spells_it(method: str) -> None:
    cr = vllm(method)
    assert problem(cr) == ""
    paths = {role.upper(): f"/models/checkpoints/{digest}" for role, digest in ROLES.items()}
    expected = {key: paths.get(str(value), value) for key, value in EXPECTED[method].items()}
    assert arguments(cr)["speculative_config"] == expected
    assert options(vllm(method, frontend="VllmServe"))["speculative-config"] == expected


def test_every_method_of_the_backend_is_tested() -> None:
    assert {*support("VLLM").methods} == {*METHODS}


def test_a_target_alone_has_no_speculation() -> None:
    assert "speculative_config" not in arguments(vllm("None"))
    assert "speculative-config" not in options(vllm("None", frontend="VllmServe"))


def test_answers_of_the_own_server_have_counts_only_with_drafts() -> None:
    """vLLM 0.32.0 refuses the option without drafts."""
    name = "per-request-spec-decode-metrics"
    assert options(vllm("NGram", "0.32.0", "VllmServe"))[name] == "summary"
    assert name not in options(vllm("None", "0.32.0", "VllmServe"))
    assert name not in options(vllm("NGram", "0.27.1", "VllmServe"))


@pytest.mark.parametrize("method", METHODS)
def test_options_are_the_arguments_by_the_names_of_flags(method: str) -> None:
    own = options(vllm(method, frontend="VllmServe"))
    expected = {name.replace("_", "-"): value for name, value in arguments(vllm(method)).items()}
    assert own == expected
    cut = put(vllm(method, frontend="VllmServe"), "runtime.chunkedContext", False)
    assert options(cut)["no-enable-chunked-prefill"] is True


def test_limits_parallelism_and_cache_are_those_of_the_spec() -> None:
    cr = vllm("NGram")
    put(cr, "target.limits", {"maxBatchSize": 4, "maxSeqLen": 3000, "maxNumTokens": 2048})
    put(cr, "target.parallelism", {"tensor": 4})
    put(cr, "target.dtype", "BFloat16")
    put(cr, "target.quantization", {"kvCache": "FP8"})
    put(cr, "target.kvCache", {"reuse": False, "memoryPercent": 80})
    put(cr, "runtime.chunkedContext", True)
    assert problem(cr) == ""
    own = arguments(cr)
    del own["speculative_config"]
    assert own == {
        "model": f"/models/checkpoints/{ROLES['target']}",
        "dtype": "bfloat16",
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 1,
        "max_num_seqs": 4,
        "max_model_len": 3000,
        "max_num_batched_tokens": 2048,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.8,
    }


@pytest.mark.parametrize("method", METHODS)
def test_cache_of_the_plan_is_written_in_bytes(method: str) -> None:
    model = SpeculativeModel.parse(vllm(method))
    checkpoints = {
        role: Checkpoint(role, ROLES[role], "", 1_000_000, stated(FACTS)) for role in model.sources
    }
    assert BACKEND.memory
    rate = BACKEND.memory(model, checkpoints)["target"].kv_per_token

    own = arguments(vllm(method), kv_tokens={"target": 4096})

    assert own["kv_cache_memory_bytes"] == 4096 * rate
    assert "kv_cache_memory_bytes" not in arguments(vllm(method))


def test_cache_of_the_spec_wins_over_the_plan() -> None:
    planned = {"target": 4096}
    size = arguments(vllm("None"), kv_tokens=planned)["kv_cache_memory_bytes"]
    fixed = put(vllm("None"), "target.kvCache", {"maxTokens": 1024})
    assert 4 * arguments(fixed, kv_tokens=planned)["kv_cache_memory_bytes"] == size
    assert 4 * arguments(fixed)["kv_cache_memory_bytes"] == size
    # The plan has the tokens of a percentage.
    share = put(vllm("None"), "target.kvCache", {"memoryPercent": 70})
    assert arguments(share, kv_tokens=planned)["kv_cache_memory_bytes"] == size
    assert "gpu_memory_utilization" not in arguments(share, kv_tokens=planned)
    assert arguments(share)["gpu_memory_utilization"] == 0.7


@pytest.mark.parametrize(
    ("method", "limits", "expected"),
    [
        ("None", {}, {"maxSeqLen": 2048, "maxInputLen": 2047, "maxNumTokens": 8192}),
        # The rule below needs 9000 tokens of a step.
        ("None", {"maxSeqLen": 9000}, {"maxInputLen": 8999, "maxNumTokens": 9000}),
        # A draft model takes a token of each of 8 requests.
        ("DraftTarget", {"maxSeqLen": 9000}, {"maxNumTokens": 9008}),
        ("DraftTarget", {"maxNumTokens": 512}, {"maxSeqLen": 256}),
        ("DraftTarget", {"maxBatchSize": 100}, {"maxNumTokens": 8292}),
        ("Eagle3", {"maxBatchSize": 100}, {"maxNumTokens": 8192}),
    ],
)
def test_open_limits_let_each_sequence_fit_into_a_step(
    method: str, limits: dict[str, int], expected: dict[str, int]
) -> None:
    cr = put(vllm(method), "target.limits", limits or None)
    put(cr, "runtime.chunkedContext", False)
    assert problem(cr) == ""
    model = backends.sized(SpeculativeModel.parse(cr), {}, 0)
    values = model.spec.target.limits.model_dump(by_alias=True)
    assert {name: values[name] for name in expected} == expected


def test_fields_win_over_arguments() -> None:
    cr = vllm("None")
    given = {"max_num_seqs": 999, "enforce_eager": False, "seed": 3}
    put(cr, "runtime.arguments", given)
    own = arguments(cr)
    assert (own["max_num_seqs"], own["enforce_eager"], own["seed"]) == (16, False, 3)
    put(cr, "runtime.frontend", "VllmServe")
    own = options(cr)
    assert (own["max-num-seqs"], own["no-enforce-eager"], own["seed"]) == (16, True, 3)


@pytest.mark.parametrize(
    ("by_load", "schedule"),
    [
        ({"maxConcurrency": 4}, [[1, 4, 5], [5, 16, 0]]),
        ({"maxConcurrency": 16}, [[1, 16, 5]]),
        ({"maxConcurrency": 64}, [[1, 64, 5]]),
        (
            {
                "schedule": [
                    {"batchSize": 1, "draftTokens": 5},
                    {"batchSize": 4, "draftTokens": 2},
                    {"batchSize": 8, "draftTokens": 0},
                ]
            },
            [[1, 3, 5], [4, 7, 2], [8, 16, 0]],
        ),
        ({"schedule": [{"batchSize": 3, "draftTokens": 5}]}, [[1, 16, 5]]),
        (
            {
                "schedule": [
                    {"batchSize": 1, "draftTokens": 5},
                    {"batchSize": 32, "draftTokens": 1},
                ]
            },
            [[1, 31, 5], [32, 32, 1]],
        ),
    ],
)
def test_draft_length_by_load_is_a_schedule_without_gaps(
    by_load: dict[str, object], schedule: list[list[int]]
) -> None:
    cr = put(vllm("NGram"), "speculation.draftLengthByLoad", by_load)
    assert problem(cr) == ""
    own = arguments(cr)["speculative_config"]
    assert own["num_speculative_tokens_per_batch_size"] == schedule
    assert own["num_speculative_tokens"] == 5


def test_suffixes_and_their_pool_are_those_of_the_spec() -> None:
    cr = vllm("SuffixAutomaton")
    block = {"maxMatchingSize": 30, "globalPool": True, "globalPoolSize": 7}
    put(cr, "speculation.suffixAutomaton", block)
    own = arguments(cr)["speculative_config"]
    assert own["suffix_decoding_max_tree_depth"] == 35
    assert own["suffix_decoding_max_cached_requests"] == 7
    put(cr, "speculation.suffixAutomaton", {"globalPool": True})
    put(cr, "speculation.maxDraftTokens", 20)
    own = arguments(cr)["speculative_config"]
    assert own["suffix_decoding_max_tree_depth"] == 40
    assert own["suffix_decoding_max_cached_requests"] == 10_000


def test_tokens_are_mapped_where_the_spec_asks_for_it() -> None:
    cr = put(vllm("DraftTarget"), "speculation.draftTarget.heterogeneousVocabulary", True)
    assert arguments(cr)["speculative_config"]["use_heterogeneous_vocab"] is True


def test_each_instance_has_gpus_of_its_own() -> None:
    cr = put(vllm("None"), "runtime.instances", 2)
    put(cr, "target.parallelism", {"tensor": 2})
    assert problem(cr) == ""
    config = files(cr)["vllm_model/config.pbtxt"]
    assert 'key: "gpu_device_ids"' in config
    assert "0,1;2,3" in config
    assert BACKEND.servers(SpeculativeModel.parse(cr)).servers[0].gpus == 4


@pytest.mark.parametrize("streaming", [True, False])
def test_the_model_streams_if_the_service_does(streaming: bool) -> None:
    own = files(vllm("NGram", serving={"streaming": streaming, "maxQueueSize": 7}))
    config = own["vllm_model/config.pbtxt"]
    parse(config)
    assert f"decoupled: {str(streaming).lower()}" in config
    assert "max_queue_size: 7" in config


@pytest.mark.parametrize("frontend", FRONTS)
def test_nothing_is_built_and_the_server_becomes_ready(frontend: str) -> None:
    world = settled(vllm("DraftTarget", frontend=frontend))
    assert world.condition("Available")["status"] == "True", world.cr["status"]
    assert world.named("engine") == []
    (deployment,) = [o for (kind, _), o in world.ever_applied.items() if kind == "Deployment"]
    server = deployment["spec"]["template"]["spec"]["containers"][0]
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
    variables = {each["name"]: each.get("value") for each in server["env"]}
    assert (variables["HF_HUB_OFFLINE"], variables["VLLM_NO_USAGE_STATS"]) == ("1", "1")


def test_triton_asks_the_model_for_a_token() -> None:
    world = settled(vllm("DraftTarget"))
    (deployment,) = [o for (kind, _), o in world.ever_applied.items() if kind == "Deployment"]
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = yaml.safe_load(server["startupProbe"]["exec"]["command"][-1])
    assert (probe["output"], probe["engines"]) == ("text_output", ["vllm_model"])


@pytest.mark.parametrize("frontend", FRONTS)
def test_the_method_is_that_of_the_backend(frontend: str) -> None:
    model = SpeculativeModel.parse(vllm("DraftTarget", frontend=frontend))
    assert not backends.method(model).resends_sequence
    assert names.servers(model) == ("target",)


def test_a_version_without_an_image_of_triton_needs_one_or_the_other_front_end() -> None:
    cr = put(vllm("None", version="0.32.0"), "runtime.image", None)
    assert "set spec.runtime.image" in problem(cr)
    assert problem(put(cr, "runtime.frontend", "VllmServe")) == ""
