"""The effect on each field when a resource migrates to or from backend VLLM."""

from typing import Any

import pytest
import yaml

from specdec.backends import migrations
from specdec.backends.migration import Body, Migration
from specdec.tools.dry_run.resource import complete, load
from support.golden_cases import SAMPLES
from unit.backends.test_migration import changed, value
from unit.dry_run.commands import run

ENGINES = load(str(SAMPLES["tensorrt-draft-target-shared"]))
SEARCHED = load(str(SAMPLES["tensorrt-ngram"]))
SEARCHED_THERE = load(str(SAMPLES["pytorch-ngram"]))
PLAIN = load(str(SAMPLES["tensorrt-baseline"]))
HEADS = load(str(SAMPLES["pytorch-eagle3"]))
FRONT = load(str(SAMPLES["pytorch-trtllm-serve"]))
OWN = load(str(SAMPLES["vllm-serve"]))


def to_vllm(values: dict[str, Any], base: Body) -> Migration:
    return migrations.migrate("VLLM", changed(values, base))


@pytest.mark.parametrize("name", [n for n in SAMPLES if n.startswith(("tensorrt-", "pytorch-"))])
def test_sample_becomes_a_valid_resource_or_names_what_it_needs(name: str) -> None:
    result = run("migrate", "-f", SAMPLES[name], "--to", "VLLM")

    assert result.exit_code in (0, 2) or "(ImageMissing)" in result.stderr, result.output
    if result.exit_code == 1:
        # The default images lack what the method needs, and only the user knows another one.
        assert "set spec.runtime.image" in result.stderr
    elif result.exit_code == 0:
        body = yaml.safe_load(result.stdout)
        assert body["spec"]["runtime"]["backend"] == "VLLM"
        assert "spec.runtime.backend is VLLM" in result.stderr
    else:
        assert result.stdout == ""
        assert ": spec." in result.stderr
        assert ": set " in result.stderr or ": remove it" in result.stderr


def test_samples_with_methods_of_vllm_have_no_needs() -> None:
    names = ["tensorrt-draft-target-shared", "tensorrt-ngram", "pytorch-ngram", "pytorch-eagle3"]
    for name in names:
        assert migrations.migrate("VLLM", load(str(SAMPLES[name]))).needs == (), name


REMOVED: dict[str, tuple[Body, Any]] = {
    "spec.target.limits.maxInputLen": (ENGINES, 512),
    "spec.target.kvCache.hostMemoryMiB": (ENGINES, 1024),
    "spec.target.engine.workers": (ENGINES, 4),
    "spec.runtime.batchSchedulerPolicy": (ENGINES, "MaxUtilization"),
    "spec.speculation.draftLengthPolicy.type": (ENGINES, "Adaptive"),
    "spec.speculation.draftTarget.draftAhead": (ENGINES, 0),
    "spec.speculation.draftTarget.draft.limits.maxSeqLen": (ENGINES, 16384),
    "spec.speculation.draftTarget.draft.parallelism.tensor": (ENGINES, 4),
    "spec.speculation.nGram.memoryMegabytes": (SEARCHED, 64),
    "spec.serving.triton.preprocessingInstances": (ENGINES, 2),
    "spec.speculation.eagle3.suffixMatching.threshold": (HEADS, 4),
    "spec.speculation.penalties": (HEADS, True),
    "spec.runtime.parameters": (ENGINES, {"cuda_graph_mode": "true"}),
    "spec.runtime.version": (ENGINES, "1.2.1"),
    "spec.runtime.image": (HEADS, "registry.example/trtllm:1"),
}


@pytest.mark.parametrize("path", REMOVED)
def test_field_without_a_meaning_is_removed_and_named(path: str) -> None:
    base, given = REMOVED[path]
    result = to_vllm({path: given}, base)
    assert result.body is not None, result.needs
    assert value(result.body, path) is None
    top = path.rsplit(".", 1)[0]
    assert any(path in change or change.startswith(top) for change in result.changes)
    complete(result.body, "b.yaml")


KEPT: dict[str, tuple[Body, Any]] = {
    "spec.target.limits.maxBatchSize": (ENGINES, 5),
    "spec.target.kvCache.maxTokens": (ENGINES, 8192),
    "spec.target.quantization.kvCache": (HEADS, "FP8"),
    "spec.target.dtype": (PLAIN, "Float32"),
    "spec.speculation.nGram.minMatch": (SEARCHED, 2),
    "spec.speculation.nGram.maxMatchingSize": (SEARCHED_THERE, 6),
    "spec.speculation.draftLengthByLoad": (HEADS, {"maxConcurrency": 4}),
    "spec.runtime.arguments": (HEADS, {"stream_interval": 2}),
    "spec.runtime.chunkedContext": (ENGINES, True),
    "spec.serving.replicas": (ENGINES, 3),
}


@pytest.mark.parametrize("path", KEPT)
def test_field_that_vllm_has_is_kept(path: str) -> None:
    base, given = KEPT[path]
    result = to_vllm({path: given}, base)
    assert result.body is not None, result.needs
    assert value(result.body, path) == given
    complete(result.body, "b.yaml")


NEEDS: dict[str, tuple[Body, Any, str]] = {
    "spec.target.quantization.method": (SEARCHED, "FP8", "already quantized"),
    "spec.target.parallelism.pipeline": (ENGINES, 2, "set it to 1 and raise tensor"),
    "spec.serving.nodesPerReplica": (ENGINES, 2, "in one pod"),
    "spec.runtime.parameters.enable_lora": (ENGINES, "true", "merge the adapter"),
    "spec.runtime.parameters.guided_decoding_backend": (ENGINES, "xgrammar", "change clients"),
    "spec.runtime.arguments.attn_backend": (HEADS, "TRTLLM", "set one of vLLM"),
}


@pytest.mark.parametrize("path", NEEDS)
def test_field_without_an_equivalent_is_reported_with_its_fix(path: str) -> None:
    base, given, fix = NEEDS[path]
    result = to_vllm({path: given}, base)
    assert result.body is None
    (need,) = result.needs
    assert need.startswith(f"{path} is ")
    assert fix in need


def test_front_end_becomes_the_server_of_the_other_engine() -> None:
    there = migrations.migrate("VLLM", FRONT).body
    assert there is not None
    assert there["spec"]["runtime"]["frontend"] == "VllmServe"
    back = migrations.migrate("PyTorch", there)
    assert back.body is not None, back.needs
    assert back.body["spec"]["runtime"]["frontend"] == "TrtllmServe"


def test_resource_of_vllm_becomes_one_of_the_llm_api() -> None:
    body = changed({"spec.runtime.version": "0.27.1", "spec.speculation.nGram.minMatch": 3}, OWN)
    result = migrations.migrate("PyTorch", body)
    assert result.body is not None, result.needs
    assert value(result.body, "spec.runtime.version") is None
    assert value(result.body, "spec.speculation.nGram.minMatch") is None
    assert any("the OpenAI server of backend PyTorch" in change for change in result.changes)
    assert not any("engines on the volume" in change for change in result.changes)
    complete(result.body, "b.yaml")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"spec.target.dtype": "Float32"}, "spec.target.dtype is Float32: set it to one of"),
        ({"spec.runtime.arguments.seed": 1}, "arguments.seed is an argument of vLLM: remove it"),
    ],
)
def test_field_that_the_llm_api_lacks_is_reported(values: dict[str, Any], sentence: str) -> None:
    (need,) = migrations.migrate("PyTorch", changed(values, OWN)).needs
    assert sentence in need


def test_same_backend_is_refused() -> None:
    (need,) = migrations.migrate("VLLM", OWN).needs
    assert need == "spec.runtime.backend is VLLM: give a resource of backend TensorRT or PyTorch"


def test_command_names_the_backends_that_it_knows() -> None:
    result = run("migrate", "-f", SAMPLES["tensorrt-ngram"], "--to", "TensorRT")
    assert result.exit_code == 2
    assert "--to TensorRT: give PyTorch or VLLM" in result.stderr
