"""The PyTorch backend: its rules, its checks of checkpoints, its memory and its pods."""

from typing import Any

import pytest
import yaml

from specdec import backends
from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.pytorch import memory
from specdec.pipeline.validation import compatibility
from specdec.pipeline.validation.compatibility import judge
from support.checkpoint_facts import by_role, stated
from support.simulated_cluster import FACTS, World, settled
from unit.backends.pytorch_cases import ROLES, Json, problem, put, pytorch


@pytest.mark.parametrize(
    ("method", "version", "path", "value", "sentence"),
    [
        (
            "NGram",
            "1.2.1",
            "target.limits",
            {"maxInputLen": 9000, "maxSeqLen": 16384, "maxNumTokens": 8192},
            "maxInputLen of the target is 9000, above maxNumTokens 8192, and such a prompt does "
            "not fit into one step: raise maxNumTokens, or set runtime.chunkedContext to true",
        ),
        ("NGram", "1.2.1", "target.dtype", "Float32", "Auto, Float16, BFloat16: choose one"),
        ("NGram", "1.2.1", "speculation.maxDraftTokens", None, "set maxDraftTokens"),
        (
            "NGram",
            "1.2.1",
            "runtime.parameters",
            {"multi_block_mode": "1"},
            "has multi_block_mode",
        ),
        (
            "NGram",
            "1.2.1",
            "speculation.draftLengthByLoad",
            {"maxConcurrency": 2},
            "draftLengthByLoad is set, and TensorRT-LLM 1.2.1 does not have it: remove it, or set "
            "runtime.version to a version that has the LLM API of 1.3.0",
        ),
        ("NGram", "1.3.0", "speculation.draftLengthByLoad", {}, "exactly one of maxConcurrency"),
        (
            "NGram",
            "1.3.0",
            "speculation.draftLengthByLoad",
            {"schedule": [{"batchSize": 4, "draftTokens": 5}, {"batchSize": 1, "draftTokens": 1}]},
            "[4, 1]: list each once, in ascending order",
        ),
        (
            "NGram",
            "1.3.0",
            "speculation.draftLengthByLoad",
            {"schedule": [{"batchSize": 1, "draftTokens": 2}]},
            "set the first step to maxDraftTokens",
        ),
        (
            "NGram",
            "1.3.0",
            "speculation.acceptanceThreshold",
            {"window": 1, "lengthPercent": 120},
            "acceptanceThreshold is set, and TensorRT-LLM 1.3.0 has a threshold of the acceptance "
            "rate in its place: set acceptanceRateThreshold",
        ),
        (
            "None",
            "1.2.1",
            "runtime.parameters",
            {"enable_lora": "true"},
            "spec.runtime.parameters.enable_lora is set, and TensorRT-LLM 1.2.1 does not have it: "
            "remove it, or set runtime.version to a version that has the LLM API of 1.3.0",
        ),
        (
            "None",
            "1.2.1",
            "runtime.parameters",
            {"guided_decoding_backend": "xgrammar"},
            "spec.runtime.parameters.guided_decoding_backend is xgrammar, and no request to "
            "backend PyTorch can name a grammar: remove it",
        ),
        (
            "NGram",
            "1.2.1",
            "speculation.penalties",
            True,
            "spec.speculation.penalties is set, and",
        ),
        (
            "Eagle3",
            "1.3.0",
            "speculation",
            {
                "method": "Eagle3",
                "maxDraftTokens": 5,
                "penalties": True,
                "eagle3": {
                    "checkpoint": {"huggingFace": {"repo": "a/b"}},
                    "dynamicTree": {"topK": 2, "maxTotalTokens": 8},
                },
            },
            "and TensorRT-LLM refuses penalties with a tree: remove one of them",
        ),
        (
            "NGram",
            "1.2.1",
            "speculation.acceptanceRateThreshold",
            {"windowSteps": 9, "ratePercent": 20},
            "acceptanceRateThreshold is set, and TensorRT-LLM 1.2.1",
        ),
        (
            "Eagle3",
            "1.2.1",
            "speculation.eagle3.dynamicTree",
            {"topK": 2, "maxTotalTokens": 8},
            "eagle3.dynamicTree is set, and TensorRT-LLM 1.2.1",
        ),
        (
            "Eagle3",
            "1.3.0",
            "speculation.eagle3.dynamicTree",
            {"topK": 2, "maxTotalTokens": 11},
            "has 5 to 10 nodes: set it to a number from 5 to 10",
        ),
        ("Eagle3", "1.2.1", "speculation.eagle3.suffixMatching", {}, "eagle3.suffixMatching is"),
        ("MTP", "1.2.1", "speculation.mtp.suffixMatching", {}, "mtp.suffixMatching is set"),
        ("Eagle3", "1.2.1", "speculation.eagle3", None, "set spec.speculation.eagle3.checkpoint"),
        ("PARD", "1.3.0", "speculation.pard", None, "set spec.speculation.pard.draft"),
        ("DFlash", "1.3.0", "speculation.dFlash", None, "set spec.speculation.dFlash.checkpoint"),
        (
            "DraftTarget",
            "1.2.1",
            "speculation.draftTarget",
            None,
            "draftTarget.draft and maxDraft",
        ),
        ("PARD", "1.3.0", "runtime.version", "1.2.1", "DraftTarget, Eagle3, MTP, NGram, None"),
        ("NGram", "1.2.1", "runtime.version", "0.21.0", "knows 1.1.0, 1.2.1"),
        ("NGram", "1.2.1", "runtime.version", "1.0.0", "knows 1.1.0, 1.2.1"),
    ],
)
def test_bad_input_is_one_sentence(
    method: str, version: str, path: str, value: Any, sentence: str
) -> None:
    message = problem(put(pytorch(method, version), path, value))
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("method", "version", "path", "text"),
    [
        ("NGram", "1.2.1", "speculation.nGram.publicPool", "speculation.nGram.publicPool is true"),
        (
            "SuffixAutomaton",
            "1.3.0",
            "speculation.suffixAutomaton.globalPool",
            "globalPool is true",
        ),
        (
            "Eagle3",
            "1.3.0",
            "speculation.eagle3.suffixMatching.globalPool",
            "suffixMatching.globalP",
        ),
        ("MTP", "1.3.0", "speculation.mtp.suffixMatching.globalPool", "suffixMatching.globalPool"),
    ],
)
def test_pools_of_texts_are_reported(method: str, version: str, path: str, text: str) -> None:
    assert backends.warnings(SpeculativeModel.parse(pytorch(method, version))) == ()
    cr = put(pytorch(method, version), path, True)
    (warning,) = backends.warnings(SpeculativeModel.parse(cr))
    assert text in warning
    world = World(cr)
    world.step()
    assert f"; warning: {warning}" in world.condition("Accepted")["message"]


def test_adapters_with_speculation_are_reported() -> None:
    parameters = {"enable_lora": "true"}
    for method, count in (("NGram", 1), ("None", 0)):
        cr = put(pytorch(method), "runtime.parameters", parameters)
        assert len(backends.warnings(SpeculativeModel.parse(cr))) == count


def codes(cr: Json, facts: dict[str, Json]) -> list[str]:
    verdict = compatibility.judge(SpeculativeModel.parse(cr), by_role(facts))
    return [str(finding.code) for finding in verdict.refused]


def enforced(method: str) -> Json:
    """Return a resource that is served only with architectures that are known to work."""
    return put(pytorch(method), "checks", {"architecture": "Enforce"})


HEADS = {
    "method": "Eagle3",
    "architecture": "LlamaForCausalLM",
    "hiddenSize": 256,
    "vocabSize": 1024,
    "draftVocabSize": 512,
    "layers": 1,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"hiddenSize": 192, "targetHiddenSize": 256}, []),
        ({"hiddenSize": 192}, ["HeadsHiddenSizeMismatch"]),
        ({"targetHiddenSize": 512}, ["HeadsHiddenSizeMismatch"]),
        ({"vocabSize": 2048}, ["HeadsVocabSizeMismatch"]),
        ({"draftVocabSize": 4096}, ["HeadsVocabSizeMismatch"]),
        ({"method": "Eagle"}, ["HeadsMethodMismatch"]),
        ({"method": "Medusa"}, ["HeadsMethodMismatch"]),
    ],
)
def test_eagle3_heads_are_compared_with_the_target(change: Json, expected: list[str]) -> None:
    assert codes(pytorch("Eagle3"), {"target": FACTS, "heads": {**HEADS, **change}}) == expected


def test_a_target_without_heads_of_the_method_is_refused() -> None:
    target = {**FACTS, "architecture": "Qwen2ForCausalLM"}
    assert codes(enforced("Eagle3"), {"target": target, "heads": HEADS}) == [
        "TargetArchitectureMismatch"
    ]
    other = {**FACTS, "architecture": "BertModel"}
    assert codes(enforced("NGram"), {"target": other}) == ["ArchitectureNotServed"]


@pytest.mark.parametrize("method", ["NGram", "Eagle3"])
def test_a_target_that_is_not_known_to_work_is_tried_with_one_warning(method: str) -> None:
    facts = {"target": {**FACTS, "architecture": "Llama9ForCausalLM"}, "heads": HEADS}
    verdict = judge(SpeculativeModel.parse(pytorch(method)), by_role(facts))
    assert verdict.refused == ()
    (warning,) = verdict.warnings
    assert warning.code == "ArchitectureNotServed"
    assert "Llama9ForCausalLM" in warning.message
    assert "spec.checks.architecture" in warning.message
    off = pytorch(method)
    off["spec"]["checks"] = {"architecture": "Disabled"}
    assert judge(SpeculativeModel.parse(off), by_role(facts)).findings == ()


def test_a_target_without_known_heads_is_tried_with_a_warning() -> None:
    facts = {"target": {**FACTS, "architecture": "Qwen2ForCausalLM"}, "heads": HEADS}
    verdict = judge(SpeculativeModel.parse(pytorch("Eagle3")), by_role(facts))
    assert [str(each.code) for each in verdict.warnings] == ["TargetArchitectureMismatch"]
    assert verdict.refused == ()


def test_prediction_layers_must_be_in_the_target() -> None:
    assert codes(pytorch("MTP"), {"target": FACTS}) == ["MtpLayersMissing"]
    assert codes(pytorch("MTP"), {"target": {**FACTS, "nextTokenLayers": 0}}) == [
        "MtpLayersMissing"
    ]
    assert codes(pytorch("MTP"), {"target": {**FACTS, "nextTokenLayers": 1}}) == []


@pytest.mark.parametrize(("method", "version"), [("DraftTarget", "1.2.1"), ("PARD", "1.3.0")])
def test_a_draft_has_the_tokenizer_of_the_target(method: str, version: str) -> None:
    cr = pytorch(method, version)
    assert codes(cr, {"target": FACTS, "draft": FACTS}) == []
    other = {**FACTS, "tokenizer": "ba9876543210", "vocabSize": 2048}
    assert codes(cr, {"target": FACTS, "draft": other}) == [
        "TokenizerMismatch",
        "VocabSizeMismatch",
    ]


def test_memory_of_a_draft_is_on_the_gpus_of_the_target() -> None:
    def need(method: str, version: str, **facts: Any) -> Any:
        model = SpeculativeModel.parse(pytorch(method, version))
        checkpoints = {
            role: Checkpoint(role, ROLES[role], "", 8_000_000, stated({**FACTS, **facts}))
            for role in model.sources
        }
        return memory.footprints(model, checkpoints)

    alone, both = need("NGram", "1.2.1"), need("PARD", "1.3.0")
    assert both["target"].kv_per_token == 2 * alone["target"].kv_per_token
    assert both["target"].parts["DraftWeights"] == alone["target"].parts["Weights"]
    # The memory plan does not know the size of a compressed cache.
    assert need("NGram", "1.2.1", architecture="DeepseekV3ForCausalLM") == {}


def test_nothing_is_built_and_the_server_answers_with_text() -> None:
    world = settled(pytorch("DraftTarget"))
    assert world.condition("Available")["status"] == "True", world.cr["status"]
    assert world.named("engine") == []
    (deployment,) = [o for (kind, _), o in world.ever_applied.items() if kind == "Deployment"]
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = yaml.safe_load(server["startupProbe"]["exec"]["command"][-1])
    assert (probe["output"], probe["engines"]) == ("text_output", ["tensorrt_llm"])
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "mpirun" not in server["command"]


def test_the_method_is_that_of_the_backend() -> None:
    model = SpeculativeModel.parse(pytorch("DraftTarget"))
    assert not backends.method(model).resends_sequence
    assert names.servers(model) == ("target",)
