"""The TensorRT backend: build plans, repositories and ranks for every method and topology."""

from typing import Any

import pytest

from specdec import backends
from specdec.api.checkpoint_facts import NO_FACTS
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from support.checkpoint_facts import stated
from support.simulated_cluster import FACTS, IMAGES, source
from unit.pipeline.tensorrt import engines, facts, parameters, plans, put, tensorrt

MODES = {
    "None": ("none", 0),
    "DraftTarget": ("draft_tokens_external", 8),
    "Eagle": ("eagle", 63),
    "Medusa": ("medusa", 63),
    "ReDrafter": ("explicit_draft_tokens", 25),
    "Lookahead": ("lookahead_decoding", 83),
}
DRAFT = "speculation.draftTarget"
BLS = "tensorrt_llm_bls"


@pytest.mark.parametrize("method", MODES)
def test_the_target_is_built_for_the_method(method: str) -> None:
    plan = engines(tensorrt(method))["target"].plan

    assert (plan["speculativeDecodingMode"], plan["maxDraftTokens"]) == MODES[method]
    blocks = {"Eagle": "eagle", "Medusa": "medusa", "ReDrafter": "reDrafter"}
    blocks["Lookahead"] = "lookahead"
    for block in blocks.values():
        assert (plan[block] is not None) == (blocks.get(method) == block)
    heads = (
        f"/models/checkpoints/{'b' * 64}" if method in ("Eagle", "Medusa", "ReDrafter") else None
    )
    assert plan["heads"] == heads


def test_the_method_s_sizes_reach_the_build() -> None:
    assert engines(tensorrt("Eagle"))["target"].plan["eagle"] == {
        "numLayers": 4,
        "maxNonLeavesPerLayer": 10,
    }
    assert engines(tensorrt("Medusa"))["target"].plan["medusa"] == {"numHeads": 4, "numLayers": 1}
    assert engines(tensorrt("ReDrafter"))["target"].plan["reDrafter"] == {
        "numBeams": 5,
        "draftLenPerBeam": 5,
        "greedySearch": True,
    }


def test_a_draft_is_built_plainly_and_for_whole_sequences() -> None:
    plan = engines(tensorrt())["draft"].plan

    assert (plan["speculativeDecodingMode"], plan["maxDraftTokens"]) == ("none", 0)
    assert plan["limits"]["maxInputLen"] == plan["limits"]["maxSeqLen"] == 512
    assert plan["gpuProduct"] == "NVIDIA-H100-80GB-HBM3"
    assert plan["architecture"] == "LlamaForCausalLM"
    assert plan["output"] == f"/models/engines/{plan['key']}"


@pytest.mark.parametrize("version", support("TensorRT").versions)
def test_engines_of_every_release_are_built_for_logits_where_they_are_compared(
    version: str,
) -> None:
    cr = tensorrt(version=version)
    assert engines(cr)["draft"].plan["engine"]["gatherGenerationLogits"] is False

    put(cr, f"{DRAFT}.acceptance", "Logits")

    assert engines(cr)["draft"].plan["engine"]["gatherGenerationLogits"] is True


@pytest.mark.parametrize("version", support("TensorRT").versions)
def test_every_version_has_an_image_and_its_conversion_scripts(version: str) -> None:
    model = SpeculativeModel.parse(tensorrt(version=version))
    assert "-trtllm-python-py3" in backends.default_image(model, IMAGES, version)
    assert engines(tensorrt(version=version))["target"].plan["examples"] == [
        "/app/examples",
        "/app/tensorrt_llm/examples",
    ]


def test_a_prebuilt_engine_is_its_fetched_directory() -> None:
    cr = put(tensorrt("None"), "target.engine.prebuilt", source("built"))
    model = SpeculativeModel.parse(cr)
    given = facts(model)
    built = Checkpoint("target-engine", "e" * 64, "", 0, NO_FACTS)
    known = {**given.checkpoints, "target-engine": built}

    engine = engines(cr, checkpoints=known)["target"]
    other = Checkpoint("target-engine", "f" * 64, "", 0, NO_FACTS)

    assert engine.path == f"/models/checkpoints/{'e' * 64}"
    assert engines(cr, checkpoints={**known, "target-engine": other})["target"].key != engine.key
    assert parameters(plans(cr)[""])["gpt_model_path"].startswith("/models/checkpoints/")


def test_config_holds_the_trees() -> None:
    eagle = put(tensorrt("Eagle"), "speculation.eagle.choices", [[0], [0, 1], [1]])
    medusa = put(tensorrt("Medusa"), "speculation.medusa.choices", [[0], [2]])

    tables = parameters(plans(eagle)[""]), parameters(plans(medusa)[""])

    assert tables[0]["eagle_choices"] == "{0}, {0, 1}, {1}"
    assert tables[0]["medusa_choices"] == ""
    assert tables[1]["medusa_choices"] == "{0}, {2}"
    assert [keys["decoding_mode"] for keys in tables] == ["eagle", "medusa"]
    assert parameters(plans(tensorrt("ReDrafter"))[""])["decoding_mode"] == "redrafter"


def test_config_holds_the_sizes_of_lookahead() -> None:
    keys = parameters(plans(tensorrt("Lookahead"))[""])
    assert keys["decoding_mode"] == "lookahead"
    assert {keys[f"lookahead_{n}"] for n in ("window_size", "ngram_size")} == {"7"}


def test_run_time_fields_become_parameters() -> None:
    cr = tensorrt()
    put(cr, "runtime.batchSchedulerPolicy", "MaxUtilization")
    put(cr, "runtime.chunkedContext", True)
    put(cr, "runtime.parameters", {"cuda_graph_mode": "true", "recv_poll_period_ms": "2"})
    put(cr, "target.kvCache", {"maxTokens": 4096, "hostMemoryMiB": 2})
    put(cr, f"{DRAFT}.draft.kvCache", {"memoryPercent": 5})

    plan = plans(cr)[""]
    target, draft = parameters(plan), parameters(plan, "tensorrt_llm_draft")

    assert target["batch_scheduler_policy"] == draft["batch_scheduler_policy"] == "max_utilization"
    assert target["enable_chunked_context"] == "true"
    assert (target["cuda_graph_mode"], target["recv_poll_period_ms"]) == ("true", "2")
    assert target["max_tokens_in_paged_kv_cache"] == "4096"
    assert target["kv_cache_host_memory_bytes"] == str(2 * 1024 * 1024)
    assert draft["kv_cache_free_gpu_mem_fraction"] == "0.05"
    assert draft["max_tokens_in_paged_kv_cache"] == draft["kv_cache_host_memory_bytes"] == ""


def test_the_memory_plan_s_budget_comes_before_a_full_batch() -> None:
    cr = tensorrt()
    full, planned = plans(cr)[""], plans(cr, kv_tokens={"target": 3000, "draft": 3072})[""]
    assert full.target.max_tokens_in_paged_kv_cache == 16 * (512 + 8)
    assert planned.target.max_tokens_in_paged_kv_cache == 3000
    assert planned.draft is not None
    assert planned.draft.max_tokens_in_paged_kv_cache == 3072
    put(cr, "target.kvCache", {"maxTokens": 77})
    own = plans(cr, kv_tokens={"target": 3000, "draft": 3072})[""]
    assert own.target.max_tokens_in_paged_kv_cache == 77


def test_the_ceiling_and_the_default_reach_the_bls() -> None:
    cr = put(tensorrt(), f"{DRAFT}.draftLengthCeiling", 6)
    put(cr, f"{DRAFT}.acceptance", "Logits")
    keys = parameters(plans(cr)[""], BLS)
    assert (keys["num_draft_tokens"], keys["max_draft_tokens"]) == ("4", "6")
    assert keys["use_draft_logits"] == "true"
    del cr["spec"]["speculation"]["draftTokens"]
    assert plans(cr)[""].draft_tokens == 6


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, ("Fixed", "", "")),
        ({"type": "Adaptive"}, ("Adaptive", "0", "6")),
        ({"type": "Adaptive", "minLength": 1, "maxLength": 4}, ("Adaptive", "1", "4")),
        # The length stays within the ceiling for requests.
        ({"type": "Adaptive", "minLength": 7, "maxLength": 8}, ("Adaptive", "6", "6")),
    ],
)
def test_the_length_policy_reaches_the_bls_within_the_ceiling(
    policy: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    cr = put(tensorrt(), f"{DRAFT}.draftLengthCeiling", 6)
    actual = parameters(plans(put(cr, "speculation.draftLengthPolicy", policy))[""], BLS)
    names = ("draft_length_policy", "min_draft_length", "max_draft_length")
    assert tuple(actual[name] for name in names) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "0"),
        ({"placement": "Dedicated"}, "1"),
        ({"placement": "Dedicated", "draftAhead": 0}, "0"),
        ({"draftAhead": 4}, "4"),
    ],
)
def test_drafting_is_pipelined_where_the_draft_has_gpus_of_its_own_unless_set(
    fields: dict[str, Any], expected: str
) -> None:
    cr = tensorrt()
    for field, value in fields.items():
        put(cr, f"{DRAFT}.{field}", value)
    assert parameters(plans(cr)[""], BLS)["draft_ahead"] == expected


def test_fast_logits_have_ranks_of_their_own() -> None:
    cr = put(tensorrt(), "target.parallelism.tensor", 4)
    for field, value in (
        ("acceptance", "Logits"),
        ("fastLogits", True),
        ("placement", "Dedicated"),
    ):
        put(cr, f"{DRAFT}.{field}", value)

    plan = plans(cr)[""]
    target, draft = parameters(plan), parameters(plan, "tensorrt_llm_draft")

    for keys in (target, draft):
        assert keys["speculative_decoding_fast_logits"] == "true"
    assert (target["participant_ids"], draft["participant_ids"]) == ("2,3,4,5", "1")
    assert (target["gpu_device_ids"], draft["gpu_device_ids"]) == ("0,1,2,3", "4")


def test_two_servers_each_have_a_plain_repository() -> None:
    cr = put(put(tensorrt(), f"{DRAFT}.topology", "TwoServers"), f"{DRAFT}.placement", "Dedicated")
    put(cr, f"{DRAFT}.draft.limits.maxBatchSize", 4)

    actual = plans(cr)

    assert sorted(actual) == ["draft", "target"]
    for role, digest in (("target", "a"), ("draft", "b")):
        plan = actual[role]
        assert (plan.draft, plan.draft_tokens) == (None, 0)
        assert parameters(plan)["decoding_mode"] == ""
        assert plan.tokenizer_dir == f"/models/checkpoints/{digest * 64}"
        assert parameters(plan, "tensorrt_llm_bls")["tensorrt_llm_draft_model_name"] == ""
    assert (actual["target"].max_batch_size, actual["draft"].max_batch_size) == (16, 4)
    assert actual["target"].target.engine_dir == engines(cr)["target"].path
    assert actual["draft"].target.engine_dir == engines(cr)["draft"].path
    assert engines(cr)["target"].plan["speculativeDecodingMode"] == "draft_tokens_external"


def test_facts_are_those_of_the_right_checkpoint() -> None:
    cr = tensorrt("Medusa")
    heads = {**facts(SpeculativeModel.parse(cr)).checkpoints}
    heads["heads"] = Checkpoint("heads", "9" * 64, "", 0, stated(FACTS))
    plan = engines(cr, checkpoints=heads)["target"].plan
    assert plan["heads"] == f"/models/checkpoints/{'9' * 64}"
    assert plan["checkpoint"] == f"/models/checkpoints/{'a' * 64}"
