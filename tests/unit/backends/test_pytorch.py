"""Backend PyTorch: its `model.yaml` by generation, its rules, its checks and its memory."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from specdec import backends, validation
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.pytorch import BACKEND, generations
from specdec.triton.llm_api import LlmApiPlan
from specdec.triton.repository import render
from specdec.validation import compatibility
from support.llm_api import llm_api_differences, schema
from support.published_layouts import parse
from support.simulated_cluster import FACTS, IMAGES, World, resource, source

Json = dict[str, Any]
EXPECTED: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("speculative_configs.yaml").read_text("utf-8")
)
BLOCKS: dict[str, Json] = {
    "DraftTarget": {"draftTarget": {"draft": {"source": source("draft")}}},
    "Eagle3": {"eagle3": {"checkpoint": source("heads")}},
    "PARD": {"pard": {"draft": source("draft")}},
}
ROLES = {role: digit * 64 for role, digit in (("target", "a"), ("draft", "b"), ("heads", "c"))}
EVERY = [(version, method) for version, rows in EXPECTED.items() for method in rows]


def pytorch(method: str, version: str = "1.2.1", **spec: Any) -> Json:
    """A valid resource; `spec` replaces whole parts of it."""
    speculation: Json = {"method": method, **deepcopy(BLOCKS.get(method, {}))}
    if method != "None":
        speculation["maxDraftTokens"] = 5
    runtime = {"backend": "PyTorch", "version": version, "image": "example.com/llm:1"}
    return resource(**{"runtime": runtime, "speculation": speculation, **spec})


def put(cr: Json, path: str, value: Any) -> Json:
    place = cr["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return cr


def plan(cr: Json, **known: Any) -> LlmApiPlan:
    model = SpeculativeModel.parse(cr)
    checkpoints = {
        role: Checkpoint(role, ROLES[role], "", 1_000_000, FACTS) for role in model.sources
    }
    facts = Facts(version=validation.version(model), checkpoints=checkpoints, **known)
    (made,) = BACKEND.repositories(model, facts).values()
    assert isinstance(made, LlmApiPlan)
    return made


def configuration(cr: Json, **known: Any) -> Json:
    text = render(plan(cr, **known))["tensorrt_llm/1/model.yaml"]
    read: Json = yaml.safe_load(text)
    return read


def errors(value: Json, version: str) -> list[str]:
    """Violations of the generation's schema; keys of mappings are text there."""
    written = yaml.safe_load(yaml.safe_dump(value))
    own = written.get("speculative_config", {})
    if "draft_len_schedule" in own:
        own["draft_len_schedule"] = {str(k): v for k, v in own["draft_len_schedule"].items()}
    return [error.message for error in Draft202012Validator(schema(version)).iter_errors(written)]


def problem(cr: Json) -> str:
    cause = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
    return cause.message if cause else ""


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


@pytest.mark.parametrize(("older", "newer"), [("0.21.0", "1.0.0"), ("1.2.1", "1.3.0")])
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
        files = render(plan(cr))
        config = parse(files["tensorrt_llm/config.pbtxt"])
        assert llm_api_differences(config) == []
        assert f"decoupled: {str(streaming).lower()}" in files["tensorrt_llm/config.pbtxt"]
        assert "max_batch_size: 0" in files["tensorrt_llm/config.pbtxt"]
        own = yaml.safe_load(files["tensorrt_llm/1/model.yaml"])["triton_config"]
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

    cr = put(
        pytorch("Eagle3"), "speculation.acceptanceThreshold", {"window": 9, "lengthPercent": 125}
    )
    written = configuration(cr)["speculative_config"]
    assert (written["acceptance_window"], written["acceptance_length_threshold"]) == (9, 1.25)
    assert errors(configuration(cr), "1.2.1") == []


def test_caches_and_limits_are_those_of_the_spec() -> None:
    cr = pytorch("NGram")
    assert "max_tokens" not in configuration(cr)["kv_cache_config"]
    assert configuration(cr, kv_tokens={"target": 640})["kv_cache_config"]["max_tokens"] == 640
    put(cr, "target.kvCache", {"memoryPercent": 40, "reuse": False, "hostMemoryMiB": 2})
    put(cr, "target.quantization.kvCache", "FP8")
    put(cr, "runtime.chunkedContext", True)
    put(cr, "runtime.parameters", {"guided_decoding_backend": "xgrammar", "enable_lora": "true"})
    written = configuration(cr)
    assert written["kv_cache_config"] == {
        "enable_block_reuse": False,
        "free_gpu_memory_fraction": 0.4,
        "host_cache_size": 2 << 20,
        "dtype": "fp8",
    }
    assert (written["enable_chunked_prefill"], written["enable_lora"]) == (True, True)
    assert errors(written, "1.2.1") == []
    config = parse(render(plan(cr))["tensorrt_llm/config.pbtxt"])
    assert "lora_path" in {tensor.name for tensor in config.input}
    assert llm_api_differences(config) == []


def test_each_instance_has_gpus_of_its_own() -> None:
    cr = put(put(pytorch("NGram"), "runtime.instances", 2), "target.parallelism.tensor", 2)
    (server,) = BACKEND.ranks(SpeculativeModel.parse(cr)).servers
    assert (server.gpus, server.launch.world_size) == (4, 1)
    text = render(plan(cr))["tensorrt_llm/config.pbtxt"]
    assert '"0,1;2,3"' in text
    assert "count: 2" in text
    single = render(plan(pytorch("NGram")))["tensorrt_llm/config.pbtxt"]
    assert "gpu_device_ids" not in single


@pytest.mark.parametrize(
    ("method", "version", "path", "value", "sentence"),
    [
        (
            "NGram",
            "1.2.1",
            "runtime.frontend",
            "TrtllmServe",
            "does not start yet: set it to Triton",
        ),
        ("NGram", "1.2.1", "target.parallelism.pipeline", 2, "set it to 1 and raise tensor"),
        ("NGram", "1.2.1", "target.gpu.deviceIds", [1], "[1], and backend PyTorch uses the first"),
        ("NGram", "1.2.1", "serving.nodesPerReplica", 2, "in one pod: set it to 1"),
        ("NGram", "1.2.1", "target.quantization.method", "FP8", "already quantized"),
        ("NGram", "1.2.1", "target.quantization.kvCache", "INT8", "has Auto and FP8"),
        ("NGram", "1.2.1", "target.engine.workers", 2, "builds no engine: remove it"),
        ("NGram", "1.2.1", "target.dtype", "Float32", "Auto, Float16, BFloat16: choose one"),
        ("NGram", "1.2.1", "speculation.maxDraftTokens", None, "set maxDraftTokens"),
        ("NGram", "1.2.1", "speculation.draftTokens", 2, "draftTokens is set, and no request"),
        ("NGram", "1.2.1", "speculation.draftLengthPolicy", {}, "draftLengthPolicy is set"),
        ("NGram", "1.2.1", "benchmark.mode", "OnReady", "set it to Disabled"),
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
            "runtime.version to one of the generation of 1.3.0",
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
            "acceptanceThreshold is set, and TensorRT-LLM 1.3.0",
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
            "has 5 to 10 nodes: set it to one of these numbers",
        ),
        ("Eagle3", "1.2.1", "speculation.eagle3.suffixMatching", {}, "eagle3.suffixMatching is"),
        ("MTP", "1.2.1", "speculation.mtp.suffixMatching", {}, "mtp.suffixMatching is set"),
        ("Eagle3", "1.2.1", "speculation.eagle3", None, "set spec.speculation.eagle3.checkpoint"),
        ("PARD", "1.3.0", "speculation.pard", None, "set spec.speculation.pard.draft"),
        (
            "DraftTarget",
            "1.2.1",
            "speculation.draftTarget",
            None,
            "draftTarget.draft and maxDraft",
        ),
        (
            "DraftTarget",
            "1.2.1",
            "speculation.draftTarget.draft.parallelism",
            {"tensor": 2},
            "has settings beside source and limits",
        ),
        ("DraftTarget", "1.2.1", "speculation.draftTarget.acceptance", "Logits", "remove both"),
        ("DraftTarget", "1.2.1", "speculation.draftTarget.rowsPerCall", 2, "without a BLS"),
        (
            "NGram",
            "1.2.1",
            "speculation.method",
            "Medusa",
            "builds none: choose Eagle3 with EAGLE-3",
        ),
        ("NGram", "1.2.1", "speculation.method", "Lookahead", "choose method NGram"),
        ("PARD", "1.3.0", "runtime.version", "1.2.1", "DraftTarget, Eagle3, MTP, NGram, None"),
        ("NGram", "1.2.1", "runtime.version", "0.20.0", "knows 0.21.0, 1.0.0"),
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
    assert BACKEND.warnings(SpeculativeModel.parse(pytorch(method, version))) == ()
    cr = put(pytorch(method, version), path, True)
    (warning,) = BACKEND.warnings(SpeculativeModel.parse(cr))
    assert text in warning
    world = World(cr)
    world.step()
    assert f"; warning: {warning}" in world.condition("Accepted")["message"]


def test_adapters_with_speculation_are_reported() -> None:
    parameters = {"enable_lora": "true"}
    for method, count in (("NGram", 1), ("None", 0)):
        cr = put(pytorch(method), "runtime.parameters", parameters)
        assert len(BACKEND.warnings(SpeculativeModel.parse(cr))) == count


def codes(cr: Json, facts: dict[str, Json]) -> list[str]:
    verdict = compatibility.judge(SpeculativeModel.parse(cr), facts)
    return [str(finding.code) for finding in verdict.refused]


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
    assert codes(pytorch("Eagle3"), {"target": target, "heads": HEADS}) == [
        "TargetArchitectureMismatch"
    ]
    other = {**FACTS, "architecture": "BertModel"}
    assert codes(pytorch("NGram"), {"target": other}) == ["ArchitectureNotServed"]


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
            role: Checkpoint(role, ROLES[role], "", 8_000_000, {**FACTS, **facts})
            for role in model.sources
        }
        return BACKEND.memory(model, checkpoints)

    alone, both = need("NGram", "1.2.1"), need("PARD", "1.3.0")
    assert both["target"].kv_per_token == 2 * alone["target"].kv_per_token
    assert both["target"].parts["DraftWeights"] == alone["target"].parts["Weights"]
    # The size of compressed caches is not known.
    assert need("NGram", "1.2.1", architecture="DeepseekV3ForCausalLM") == {}


def test_nothing_is_built_and_the_server_answers_with_text() -> None:
    world = World(pytorch("DraftTarget"))
    world.settle()
    assert world.condition("Available")["status"] == "True", world.cr["status"]
    assert world.named("engine") == []
    (deployment,) = [o for (kind, _), o in world.ever_applied.items() if kind == "Deployment"]
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = yaml.safe_load(server["startupProbe"]["exec"]["command"][-1])
    assert (probe["answer"], probe["engines"]) == ("text", ["tensorrt_llm"])
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "mpirun" not in server["command"]


def test_the_method_is_that_of_the_backend() -> None:
    model = SpeculativeModel.parse(pytorch("DraftTarget"))
    assert not backends.method(model).resends_sequence
    assert model.control == "LlmApi"
