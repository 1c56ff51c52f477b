"""TensorRT builds that cannot succeed: refused before a program runs, or ended with a message."""

import ast
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from unit.build.image import Image
from unit.build.test_tensorrt_build import EAGLE, planned


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


@pytest.mark.parametrize(
    ("method", "change", "part"),
    [
        ("none", {"backend": "PyTorch"}, "backend: 'PyTorch' must be one of"),
        ("none", {"dtype": "int4"}, "dtype: 'int4' must be one of"),
        ("none", {"speculativeDecodingMode": "ngram"}, "speculativeDecodingMode: 'ngram'"),
        ("none", {"tensorParallel": -1}, "tensorParallel: -1 must be at least 1"),
        ("none", {"limits": {"maxBatchSize": 0}}, "maxBatchSize: 0 must be at least 1"),
        ("none", {"limits": {}}, "maxBatchSize"),
        ("none", {"examples": None}, "examples: None must be a list"),
        ("none", {"examples": []}, "examples: [] must be a list with at least one item"),
        ("none", {"quantization": {"method": "GGUF"}}, "method: 'GGUF' must be one of"),
        ("none", {"quantization": {"kvCache": "FP8"}}, "set quantization.method too"),
        ("none", {"quantization": {"kvCache": "INT8"}}, "INT8 beside method None cannot be read"),
        (
            "none",
            {"quantization": {"method": "INT4AWQ", "kvCache": "FP8"}},
            "FP8 beside method INT4AWQ cannot be read by paged context attention",
        ),
        (
            "none",
            {"quantization": {"method": "FP8"}, "engine": {"fp8ContextFmha": True}},
            "engine.fp8ContextFmha: needs FP8 scales and an FP8 cache, not FP8 and Auto",
        ),
        (
            "none",
            {
                "quantization": {"method": "INT8SQ"},
                "engine": {"fp8ContextFmha": True, "pagedContextFmha": False},
            },
            "not INT8SQ and Auto",
        ),
        ("none", {"heads": "/models/checkpoints/x"}, "do not go together"),
        ("none", EAGLE, "do not go together"),
        ("draft_tokens_external", {"maxDraftTokens": 0}, "needs at least 1"),
        ("eagle", {"pipelineParallel": 2}, "pipelineParallel: 2 must be 1 with eagle"),
        ("eagle", {"engine": {"pagedContextFmha": False}}, "pagedContextFmha"),
        ("eagle", {"quantization": {"method": "FP8"}}, "leave quantization out"),
        ("explicit_draft_tokens", {"pipelineParallel": 2}, "use tensorParallel"),
        ("explicit_draft_tokens", {"quantization": {"method": "FP8"}}, "from 1.0"),
        ("none", {"engine": {"extraArgs": {"a b": "1"}}}, "'a b' is not a flag's name"),
        ("none", {"engine": {"extraArgs": {"-x": "1"}}}, "is not a flag's name"),
        ("none", {"engine": {"extraArgs": {"x\n": "1"}}}, "is not a flag's name"),
        ("none", {"engine": {"extraArgs": {"x": "\0"}}}, "NUL"),
        ("none", {"engine": {"extraArgs": {"max_draft_len": "5"}}}, "follows from the spec"),
        ("none", {"engine": {"extraArgs": {"output_dir": "/"}}}, "follows from the spec"),
        # The program also accepts an unambiguous prefix or an alias of a flag.
        ("none", {"engine": {"extraArgs": {"output_d": "/"}}}, "follows from the spec"),
        ("none", {"engine": {"extraArgs": {"max_decoder_seq_len": "9"}}}, "follows from the"),
        ("none", {"engine": {"extraArgs": {"output_timing_cache": "/x"}}}, "follows from the"),
    ],
)
def test_bad_plans_are_refused_before_anything_runs(
    method: str, change: dict[str, Any], part: str, image: Image
) -> None:
    reason, message = image.refused(planned(image, method, **change))
    assert reason == "PlanInvalid"
    assert part in message
    assert image.programs() == []


def test_the_schema_and_the_build_keep_the_same_flags() -> None:
    """The build also refuses the flags: an older schema and `specdec plan` lack the rule."""
    root = Path(__file__).parents[3]
    source = (root / "operator/specdec/images/build/tensorrt_flags.py").read_text("utf-8")
    flags = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OURS"
    )
    crd = (root / "crds/speculativemodels.yaml").read_text("utf-8")
    rule = re.search(r"!self\.exists\(k, (\['checkpoint_dir'.*?\])\.exists\(", crd, re.DOTALL)
    assert rule is not None
    assert ast.literal_eval(rule[1]) == list(ast.literal_eval(flags))


@pytest.mark.parametrize(
    ("method", "architecture", "part"),
    [
        ("none", "GemmaForCausalLM", "GemmaForCausalLM of the target has no converter"),
        ("eagle", "Qwen2ForCausalLM", "cannot carry heads of mode eagle; use one of Llama"),
        ("medusa", "MistralForCausalLM", "cannot carry heads of mode medusa"),
        ("explicit_draft_tokens", "Qwen2ForCausalLM", "from 1.0 on"),
    ],
)
def test_architectures_without_a_converter_are_refused(
    method: str, architecture: str, part: str, image: Image
) -> None:
    image.checkpoint(architecture)
    reason, message = image.refused(planned(image, method))
    assert reason == "UnsupportedArchitecture"
    assert part in message
    assert image.programs() == []


def test_a_family_has_its_own_converter(image: Image) -> None:
    image.checkpoint("Qwen2ForCausalLM")
    (image.root / "examples/llama/convert_checkpoint.py").unlink()
    assert "engine" in image.build(image.plan())[0]


def test_an_image_without_the_programs_is_reported(image: Image) -> None:
    (image.root / "bin/trtllm-build").unlink()
    reason, message = image.refused(image.plan())
    assert reason == "BuildFailed"
    assert "has no trtllm-build; set spec.runtime.image" in message
    (image.root / "examples/llama/convert_checkpoint.py").unlink()
    reason, message = image.refused(image.plan())
    assert reason == "ImageMismatch"
    assert "/llama/convert_checkpoint.py; set spec.runtime.image to one of version" in message


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_checkpoint_without_config_is_reported(text: str | None, image: Image) -> None:
    path = image.root / "base" / "config.json"
    path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    assert image.refused(image.plan())[0] == "CheckpointCorrupt"


CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("program", "scene", "reason", "part"),
    [
        ("trtllm-build", {"prints": [CUDA], "status": 1}, "OutOfMemory", "lower limits.maxBatch"),
        ("convert", {"signal": signal.SIGKILL}, "OutOfMemory", "spec.build.resources.limits"),
        ("convert", {"prints": ["MemoryError"], "status": 1}, "OutOfMemory", "host memory"),
        (
            "convert",
            {"prints": ["OSError: [Errno 28] No space left on device"], "status": 1},
            "VolumeFull",
            "enlarge the claim",
        ),
        (
            "trtllm-build",
            {"prints": ["RuntimeError: plugin is missing", "Aborted"], "status": 134},
            "BuildFailed",
            "trtllm-build failed with status 134: RuntimeError: plugin is missing",
        ),
        ("convert", {"prints": [], "status": 7}, "BuildFailed", "convert_checkpoint.py failed"),
        ("convert", {"prints": ["x" * 100_000], "status": 1}, "BuildFailed", "status 1: xxx"),
        ("trtllm-build", {"skip": [1]}, "BuildFailed", "succeeded without rank1.engine"),
    ],
)
def test_a_failing_program_is_reported_in_one_sentence(
    program: str, scene: dict[str, Any], reason: str, part: str, image: Image
) -> None:
    image.scene = {program: scene}
    actual, message = image.refused(image.plan(tensorParallel=2))
    assert actual == reason
    assert part in message
    assert len(json.dumps(message)) < 1000


@pytest.mark.parametrize("dataset", ["acme/cnn_dailymail", "cnn_dailymail", "./cnn_dailymail"])
def test_a_data_set_of_a_hub_brings_no_code_into_the_build(dataset: str, image: Image) -> None:
    """The release's scripts load any data set named `*cnn_dailymail*`, and run its code."""
    quantization = {"method": "FP8", "calibration": {"dataset": dataset, "samples": 8}}
    reason, message = image.refused(image.plan(quantization=quantization))
    assert reason == "PlanInvalid"
    assert "download it and name its directory" in message
    assert image.programs() == []


def test_calibration_data_out_of_reach_is_reported(image: Image) -> None:
    image.scene = {"quantize": {"prints": ["ConnectionError: Couldn't reach 'x'"], "status": 1}}
    _, message = image.refused(image.plan(quantization={"method": "FP8"}))
    assert "set quantization.calibration.dataset to a directory with one" in message


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"build_config": {"speculative_decoding_mode": 1, "max_draft_len": 10}}, "is none, not"),
        (
            {"build_config": {"speculative_decoding_mode": 2, "max_draft_len": 5}},
            "max_draft_len is 5, not 10",
        ),
        (
            {
                "build_config": {
                    "speculative_decoding_mode": 2,
                    "max_draft_len": 10,
                    "plugin_config": {"use_paged_context_fmha": False},
                }
            },
            "use_paged_context_fmha is False, not True",
        ),
        (
            {
                "pretrained_config": {
                    "mapping": {"tp_size": 1, "pp_size": 1},
                    "vocab_size": 5,
                    "logits_dtype": "float16",
                }
            },
            "logits_dtype is float16, not float32",
        ),
        ({"build_config": None}, "lacks what a server needs"),
        ({"pretrained_config": {"mapping": {"tp_size": 1, "pp_size": 1}}}, "vocab_size"),
        (
            {"pretrained_config": {"mapping": {"tp_size": 2, "pp_size": 1}, "vocab_size": 5}},
            "tp_size is 2, not 1; rank files is 2, not 1",
        ),
    ],
)
def test_an_engine_of_another_kind_is_not_published(
    config: dict[str, Any], part: str, image: Image
) -> None:
    image.scene = {"trtllm-build": {"config": config}}
    reason, message = image.refused(planned(image, "draft_tokens_external"))
    assert reason == "EngineMismatch"
    assert part in message
