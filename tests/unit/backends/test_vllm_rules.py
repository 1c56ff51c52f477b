"""Backend VLLM: its rules, and its checks of checkpoints."""

from typing import Any

import pytest

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.pipeline.validation import compatibility
from support.checkpoint_facts import by_role
from support.simulated_cluster import FACTS
from support.vllm_resources import Json, problem, put, vllm


@pytest.mark.parametrize(
    ("method", "path", "value", "sentence"),
    [
        (
            "None",
            "target.limits.maxSeqLen",
            9000,
            "limits.maxSeqLen of the target is 9000, above maxNumTokens 8192, and such a sequence "
            "does not fit into one step: raise maxNumTokens, or set runtime.chunkedContext to "
            "true",
        ),
        (
            "DraftTarget",
            "target.limits",
            {"maxBatchSize": 16, "maxSeqLen": 8180, "maxNumTokens": 8192},
            "limits.maxSeqLen of the target is 8180, above maxNumTokens 8192 without the 16 of "
            "drafts, and such a sequence does not fit",
        ),
        (
            "DraftTarget",
            "target.limits",
            {"maxBatchSize": 512, "maxSeqLen": 512, "maxNumTokens": 512},
            "limits.maxNumTokens of the target is 512, and drafts of maxBatchSize 512 take 512 of "
            "them in each step: raise maxNumTokens, or lower maxBatchSize",
        ),
        ("NGram", "speculation.maxDraftTokens", None, "set maxDraftTokens"),
        (
            "NGram",
            "speculation.nGram",
            {"minMatch": 5},
            "nGram.minMatch is 5, above maxMatchingSize 4: lower minMatch, or raise",
        ),
        ("NGram", "speculation.nGram", {"publicPool": True}, "remove nGram.keepAll"),
        ("NGram", "speculation.nGram", {"memoryMegabytes": 9}, "no nGram.memoryMegabytes"),
        ("NGram", "speculation.draftLengthByLoad", {}, "exactly one of maxConcurrency"),
        ("NGram", "speculation.penalties", True, "may always have penalties: remove"),
        (
            "Eagle3",
            "speculation.eagle3.dynamicTree",
            {"topK": 2, "maxTotalTokens": 8},
            "drafts chains and no trees: remove eagle3.dynamicTree",
        ),
        ("Eagle3", "speculation.eagle3.suffixMatching", {}, "remove eagle3.suffixMatching"),
        ("Eagle3", "speculation.eagle3", None, "set spec.speculation.eagle3.checkpoint"),
        ("DraftTarget", "speculation.draftTarget", None, "draftTarget.draft and maxDraft"),
        (
            "DraftTarget",
            "speculation.draftTarget.draft.limits",
            {"maxSeqLen": 4096},
            "draft has only a source: remove its other fields",
        ),
        ("DraftTarget", "target.parallelism", {"pipeline": 2}, "set target.parallelism.pipeline"),
        (
            "None",
            "target.limits.maxInputLen",
            100,
            "limits a prompt with its answer, and no prompt alone: remove "
            "target.limits.maxInputLen, and set maxSeqLen",
        ),
        ("None", "target.kvCache", {"hostMemoryMiB": 1}, "keeps its cache on the GPU: remove"),
        (
            "None",
            "runtime.batchSchedulerPolicy",
            "MaxUtilization",
            "starts a request early, and pauses it if the cache is full: remove "
            "runtime.batchSchedulerPolicy",
        ),
        ("None", "runtime.parameters", {"enable_lora": "true"}, "field sets: remove it"),
        ("None", "runtime.frontend", "TrtllmServe", "has front end TrtllmServe"),
        ("None", "target.quantization", {"method": "FP8"}, "serves checkpoints as they are"),
    ],
)
def test_bad_input_is_one_sentence(method: str, path: str, value: Any, sentence: str) -> None:
    cr = put(vllm(method), "runtime.chunkedContext", False)
    assert problem(cr) == ""
    message = problem(put(cr, path, value))
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("runtime.instances", 2, "vLLM's own server has one instance"),
        ("serving.openAI", {}, "vLLM's own server has the OpenAI API: remove serving.openAI"),
        ("serving.tls", {"secretName": "tls"}, "has no gRPC port to encrypt"),
        ("serving.http", "HealthOnly", "serves clients over HTTP only"),
        ("serving.streaming", False, "decides whether it streams"),
    ],
)
def test_own_server_refuses_what_only_triton_has(path: str, value: Any, sentence: str) -> None:
    assert sentence in problem(put(vllm("NGram", frontend="VllmServe"), path, value))
    assert problem(put(vllm("NGram"), path, value)) == ""


def codes(cr: Json, facts: dict[str, Json]) -> list[str]:
    verdict = compatibility.judge(SpeculativeModel.parse(cr), by_role(facts))
    return [str(finding.code) for finding in verdict.refused]


def test_eagle3_heads_are_compared_with_the_target() -> None:
    heads = {"method": "Eagle3", "hiddenSize": 256, "vocabSize": 1024, "draftVocabSize": 512}
    assert codes(vllm("Eagle3"), {"target": FACTS, "heads": heads}) == []
    wide = {**heads, "draftVocabSize": 4096}
    assert codes(vllm("Eagle3"), {"target": FACTS, "heads": wide}) == ["HeadsVocabSizeMismatch"]
    other = {**heads, "method": "Medusa"}
    assert codes(vllm("Eagle3"), {"target": FACTS, "heads": other}) == ["HeadsMethodMismatch"]


def test_medusa_has_a_head_for_each_draft_token() -> None:
    heads = {"method": "Medusa", "hiddenSize": 256, "vocabSize": 1024, "numHeads": 4}
    assert codes(vllm("Medusa"), {"target": FACTS, "heads": heads}) == ["DraftLengthMismatch"]
    heads["numHeads"] = 5
    assert codes(vllm("Medusa"), {"target": FACTS, "heads": heads}) == []


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (None, ["MtpLayersMissing"]),
        (1, []),
        (2, ["DraftLengthMismatch"]),
        (5, []),
        (6, []),
    ],
)
def test_prediction_layers_are_applied_in_turn(layers: int | None, expected: list[str]) -> None:
    target = {**FACTS, "architecture": "DeepseekV3ForCausalLM", "nextTokenLayers": layers}
    assert codes(vllm("MTP"), {"target": target}) == expected


def test_a_dflash_draft_is_shorter_than_its_block() -> None:
    heads = {
        "method": "DFlash",
        "hiddenSize": 256,
        "vocabSize": 1024,
        "blockSize": 5,
        "maskToken": 9,
        "capturedLayers": 2,
        "lastTargetLayer": 3,
    }
    assert codes(vllm("DFlash"), {"target": FACTS, "heads": heads}) == ["DraftLengthMismatch"]
    heads["blockSize"] = 6
    assert codes(vllm("DFlash"), {"target": FACTS, "heads": heads}) == []


@pytest.mark.parametrize(
    ("layout", "expected"), [(None, ["HeadsLayersMismatch"]), ("speculators", [])]
)
def test_drafts_of_speculators_count_the_states_before_the_first_layer(
    layout: str | None, expected: list[str]
) -> None:
    heads = {
        "method": "DFlash",
        "hiddenSize": 256,
        "vocabSize": 1024,
        "blockSize": 8,
        "maskToken": 9,
        "capturedLayers": 2,
        "lastTargetLayer": FACTS["layers"],
        "layout": layout,
    }
    assert codes(vllm("DFlash"), {"target": FACTS, "heads": heads}) == expected


@pytest.mark.parametrize("method", ["DraftTarget", "PARD"])
def test_a_padded_vocabulary_does_not_fit(method: str) -> None:
    """vLLM compares the sizes, also where the tokenizers are equal; no check weakens that."""
    padded = {**FACTS, "maskToken": 1, "vocabSize": 1000}
    cr = put(vllm(method), "checks", {"vocabulary": "Disabled"})
    assert codes(cr, {"target": FACTS, "draft": padded}) == ["VocabSizeMismatch"]


def test_tokens_of_another_vocabulary_are_mapped() -> None:
    other = {**FACTS, "tokenizer": "ba9876543210", "vocabSize": 2048, "eos": 7}
    cr = put(vllm("DraftTarget"), "speculation.draftTarget.heterogeneousVocabulary", True)
    assert codes(cr, {"target": FACTS, "draft": other}) == []
    assert problem(cr) == ""
    put(cr, "runtime.version", "0.24.0")
    assert "set it to false, or runtime.version to 0.27.1" in problem(cr)


def test_suffix_decoding_needs_an_image_with_its_package() -> None:
    assert problem(vllm("SuffixAutomaton")) == ""
    message = problem(put(vllm("SuffixAutomaton"), "runtime.image", None))
    assert "not known to have it: set spec.runtime.image to an image with" in message


def test_a_pool_of_texts_is_reported() -> None:
    assert backends.warnings(SpeculativeModel.parse(vllm("SuffixAutomaton"))) == ()
    cr = put(vllm("SuffixAutomaton"), "speculation.suffixAutomaton.globalPool", True)
    (warning,) = backends.warnings(SpeculativeModel.parse(cr))
    assert "suffixAutomaton.globalPool is true" in warning


def test_medusa_needs_a_version_that_loads_its_heads() -> None:
    assert "0.24.0 serves DFlash" in problem(vllm("Medusa", version="0.24.0"))


def test_a_draft_has_the_tokenizer_of_the_target() -> None:
    other = {**FACTS, "tokenizer": "ba9876543210", "vocabSize": 2048}
    assert codes(vllm("DraftTarget"), {"target": FACTS, "draft": other}) == [
        "TokenizerMismatch",
        "VocabSizeMismatch",
    ]


def test_a_parallel_draft_has_a_token_for_its_places() -> None:
    """vLLM ends at its start without one."""
    draft = {**FACTS, "maskToken": 1}
    assert codes(vllm("PARD"), {"target": FACTS, "draft": draft}) == []
    assert codes(vllm("PARD"), {"target": FACTS, "draft": FACTS}) == ["HeadsMethodMismatch"]


@pytest.mark.parametrize(("longest", "positions", "short"), [(512, 512, False), (512, 256, True)])
def test_a_draft_has_the_longest_sequence_of_its_target(
    longest: int, positions: int, short: bool
) -> None:
    cr = put(vllm("DraftTarget"), "target.limits.maxSeqLen", longest)
    draft = {**FACTS, "maxPosition": positions}
    facts = {"target": {**FACTS, "maxPosition": 8192}, "draft": draft}
    verdict = compatibility.judge(SpeculativeModel.parse(cr), by_role(facts))
    assert ["of the target" in finding.message for finding in verdict.warnings] == [True] * short


def test_an_open_limit_is_what_target_and_draft_allow() -> None:
    cr = put(vllm("DraftTarget"), "target.limits.maxSeqLen", None)
    facts = {"target": {**FACTS, "maxPosition": 8192}, "draft": {**FACTS, "maxPosition": 1024}}
    assert not compatibility.judge(SpeculativeModel.parse(cr), by_role(facts)).findings
