"""TensorRT builds of every method and precision, with fake programs that check arguments."""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from unit.build.image import FOLDERS, Image

EAGLE = {
    "speculativeDecodingMode": "eagle",
    "eagle": {"numLayers": 4, "maxNonLeavesPerLayer": 10},
}
MEDUSA = {"speculativeDecodingMode": "medusa", "medusa": {"numHeads": 4, "numLayers": 1}}
REDRAFTER = {
    "speculativeDecodingMode": "explicit_draft_tokens",
    "reDrafter": {"numBeams": 4, "draftLenPerBeam": 5, "greedySearch": False},
}
LOOKAHEAD = {
    "speculativeDecodingMode": "lookahead_decoding",
    "lookahead": {"windowSize": 7, "ngramSize": 7, "verificationSetSize": 7},
}
EXTERNAL = {"speculativeDecodingMode": "draft_tokens_external", "maxDraftTokens": 10}
METHODS: dict[str, tuple[dict[str, Any], int]] = {
    "none": ({}, 0),
    "draft_tokens_external": (EXTERNAL, 10),
    "eagle": (EAGLE, 63),
    "medusa": (MEDUSA, 63),
    "explicit_draft_tokens": (REDRAFTER, 20),
    "lookahead_decoding": (LOOKAHEAD, 83),
}
HEADS = ("eagle", "medusa", "explicit_draft_tokens")


def planned(image: Image, method: str, **changes: Any) -> dict[str, Any]:
    block = METHODS[method][0]
    heads = {"heads": str(image.root / "heads")} if method in HEADS else {}
    return image.plan(**{**block, **heads, **changes})


@pytest.mark.parametrize("version", ["0.18.0", "0.19.0", "1.2.1"])
@pytest.mark.parametrize(("method", "dtype"), [*itertools.product(METHODS, ("auto", "float16"))])
def test_every_method_builds(version: str, method: str, dtype: str, tmp_path: Path) -> None:
    image = Image(tmp_path, version, checked=True)
    message, text = image.build(planned(image, method, dtype=dtype))
    engine = message["engine"]
    assert (engine["image"]["version"], engine["image"]["templates"]) == (version, 5)
    assert engine["image"]["flags"] > 15
    assert engine["maxDraftLen"] == METHODS[method][1]
    assert engine["config"]["speculativeDecodingMode"] == method
    built = image.arguments("trtllm-build")
    assert built.get("speculative_decoding_mode", "none") == method
    carried = method in ("draft_tokens_external", "lookahead_decoding")
    assert built.get("max_draft_len") == (str(METHODS[method][1]) if carried else None)
    assert (built["use_paged_context_fmha"], built["kv_cache_type"]) == ("enable", "paged")
    assert (built["max_batch_size"], built["max_num_tokens"]) == ("8", "8192")
    assert image.left() == ["k1"]
    manifest = json.loads((image.output / "manifest.json").read_text(encoding="utf-8"))
    assert engine["bytes"] == sum(entry["bytes"] for entry in manifest["files"].values())
    assert engine["vocabSize"] == manifest["vocabSize"] == 128
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == hashlib.sha256((image.output / name).read_bytes()).hexdigest()
    assert text.splitlines()[-1].startswith("progress phase=done percent=100")


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("method", METHODS)
def test_scripts_may_lie_in_either_folder(folder: str, method: str, tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", folder=folder)
    assert "engine" in image.build(planned(image, method))[0]


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (4, 2), (8, 1), (1, 2)])
@pytest.mark.parametrize("method", ["none", "draft_tokens_external", "medusa"])
def test_every_rank_has_its_file(method: str, tensor: int, pipeline: int, tmp_path: Path) -> None:
    image = Image(tmp_path)
    sizes = {"tensorParallel": tensor, "pipelineParallel": pipeline}
    assert "engine" in image.build(planned(image, method, **sizes))[0]
    ranks = sorted(name for name in image.made() if name.endswith(".engine"))
    assert ranks == sorted(f"rank{rank}.engine" for rank in range(tensor * pipeline))
    # A single GPU builds all ranks, one after another.
    assert image.arguments("trtllm-build")["workers"] == "1"


@pytest.mark.parametrize(
    ("method", "qformat"),
    [
        ("FP8", "fp8"),
        ("INT8SQ", "int8_sq"),
        ("INT4AWQ", "int4_awq"),
        ("W4A8AWQ", "w4a8_awq"),
        ("NVFP4", "nvfp4"),
    ],
)
@pytest.mark.parametrize("mode", ["none", "draft_tokens_external", "medusa", "lookahead_decoding"])
@pytest.mark.parametrize("cache", ["Auto", "FP8", "INT8"])
def test_every_quantization(
    mode: str, method: str, qformat: str, cache: str, tmp_path: Path
) -> None:
    image = Image(tmp_path)
    quantization = {
        "method": method,
        "kvCache": cache,
        "calibration": {"dataset": "/models/$(touch x) text", "samples": 64},
    }
    # Paged context attention supports an FP8 cache only with FP8 weights, and no INT8 cache.
    paged = cache == "Auto" or (cache == "FP8" and method in ("FP8", "W4A8AWQ", "NVFP4"))
    engine = {"pagedContextFmha": paged}
    plan = planned(image, mode, quantization=quantization, tensorParallel=2, engine=engine)
    assert "engine" in image.build(plan)[0]
    assert image.programs() == ["quantize", "trtllm-build"]
    given = image.arguments("quantize")
    assert (given["qformat"], given["calib_size"]) == (qformat, "64")
    assert given.get("kv_cache_dtype") == (None if cache == "Auto" else cache.lower())
    assert given["calib_dataset"] == "/models/$(touch x) text"
    assert image.arguments("trtllm-build")["workers"] == "2"


def test_redrafter_over_a_quantized_base_from_1_0(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1")
    image.checkpoint("Qwen2ForCausalLM")
    quantization = {"method": "FP8", "kvCache": "FP8"}
    plan = planned(image, "explicit_draft_tokens", quantization=quantization, tensorParallel=2)
    assert image.build(plan)[0]["engine"]["maxDraftLen"] == 20
    assert image.programs() == ["quantize", "convert-redrafter-1", "trtllm-build"]
    given = image.arguments("convert-redrafter-1")
    assert "redrafter_no_greedy_search" in given
    assert (given["redrafter_num_beams"], given["tp_size"]) == ("4", "2")
    assert given["dtype"] == "bfloat16"  # of the checkpoint: this converter has no "auto"


def test_options_and_extra_flags_reach_the_build(tmp_path: Path) -> None:
    image = Image(tmp_path)
    engine = {
        "pagedContextFmha": False,
        "fp8ContextFmha": True,
        "plugins": {"gemm": "fp8", "gptAttention": "float16", "lowLatencyGemm": "fp8"},
        "workers": 9,
        "gatherGenerationLogits": True,
        "extraArgs": {"opt_num_tokens": "64", "fast_build": "", "multiple_profiles": "enable"},
    }
    quantization = {"method": "FP8", "kvCache": "FP8"}
    plan = image.plan(engine=engine, tensorParallel=4, quantization=quantization)
    assert "engine" in image.build(plan)[0]
    given = image.arguments("trtllm-build")
    assert given["use_paged_context_fmha"] == "disable"
    assert given["use_fp8_context_fmha"] == "enable"
    assert (given["gemm_plugin"], given["low_latency_gemm_plugin"]) == ("fp8", "fp8")
    assert given["workers"] == "4"  # at most the number of ranks
    assert (given["opt_num_tokens"], given["multiple_profiles"]) == ("64", "enable")
    assert {"fast_build", "gather_generation_logits"} <= given.keys()


@pytest.mark.parametrize(
    ("mode", "cache", "on_host"),
    [("eagle", "Auto", True), ("medusa", "Auto", True), ("medusa", "INT8", False)],
)
def test_targets_larger_than_the_build_s_gpu_are_converted_on_the_host(
    mode: str, cache: str, on_host: bool, tmp_path: Path
) -> None:
    image = Image(tmp_path)
    # Calibration for an INT8 cache runs the model, so this conversion stays on the GPU.
    quantization = {"method": "None", "kvCache": cache}
    engine = {"pagedContextFmha": cache == "Auto"}
    assert (
        "engine" in image.build(planned(image, mode, quantization=quantization, engine=engine))[0]
    )
    assert ("load-model-on-cpu" in image.arguments(f"convert-{mode}")) is on_host


def test_progress_grows_to_the_end(tmp_path: Path) -> None:
    image = Image(tmp_path)
    _, text = image.build(image.plan(tensorParallel=4))
    lines = [line.split() for line in text.splitlines() if line.startswith("progress ")]
    progress = [(line[1].partition("=")[2], int(line[2].partition("=")[2])) for line in lines]
    percents = [percent for _, percent in progress]
    assert percents == sorted(percents)
    phases = list(dict.fromkeys(phase for phase, _ in progress))
    assert phases == ["convert", "build", "manifest", "done"]
    # Progress also grows within a step.
    assert len({percent for phase, percent in progress if phase == "build"}) >= 4


def test_a_complete_engine_is_not_built_again(tmp_path: Path) -> None:
    image = Image(tmp_path)
    first = image.build(image.plan())[0]
    assert image.build(image.plan())[0] == first
    assert image.programs() == ["convert", "trtllm-build"]


def test_an_engine_without_manifest_is_replaced(tmp_path: Path) -> None:
    image = Image(tmp_path)
    image.output.mkdir(parents=True)
    (image.output / "rank7.engine").write_bytes(b"half")
    assert "engine" in image.build(image.plan())[0]
    assert sorted(image.made()) == ["config.json", "rank0.engine"]
