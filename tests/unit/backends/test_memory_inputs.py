"""The memory footprints of public models, compared with published figures."""

from dataclasses import replace
from typing import Any

import pytest

from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Footprint
from specdec.backends.tensorrt.memory import footprints
from support.checkpoint_facts import stated
from unit.pipeline.public import alone, checkpoint, models, pair, spec

GIB = 1 << 30


def of(name: str, target: dict[str, Any] | None = None, *, counted: bool = True) -> Footprint:
    model = alone("NVIDIA-H100-80GB-HBM3", target or spec())
    return footprints(model, {"target": checkpoint("target", name, counted=counted)})["target"]


@pytest.mark.parametrize("counted", [True, False], ids=["parameters", "bytes"])
@pytest.mark.parametrize("name", models())
def test_weights_and_cache_of_a_public_model(name: str, counted: bool) -> None:
    need = of(name, counted=counted)

    assert need.parts["Weights"] / GIB == pytest.approx(models()[name]["weightsGiB"], abs=0.01)
    assert need.kv_per_token == models()[name]["kvKiB"] * 1024


@pytest.mark.parametrize(
    ("method", "gib"),
    [
        # (70.554e9 - 2 x 128256 x 8192) x bytes + 2 x 128256 x 8192 x 2, in GiB.
        ("FP8", 67.67),
        ("INT8SQ", 67.67),
        ("INT4AWQ", 37.70),
        ("W4A8AWQ", 37.70),
        ("NVFP4", 39.77),
    ],
)
def test_quantization_leaves_embeddings_in_16_bits(method: str, gib: float) -> None:
    need = of("llama-3.1-70b", spec(method=method))

    assert need.parts["Weights"] / GIB == pytest.approx(gib, abs=0.02)


@pytest.mark.parametrize(("stored", "gib"), [("FP8", 67.67), ("INT4AWQ", 37.70), ("NVFP4", 39.77)])
def test_a_quantized_checkpoint_keeps_the_size_of_its_files(stored: str, gib: float) -> None:
    model = alone("NVIDIA-H100-80GB-HBM3", spec())
    files = checkpoint("target", "llama-3.1-70b", stored=stored)

    need = footprints(model, {"target": files})["target"]

    assert need.parts["Weights"] / GIB == pytest.approx(gib, abs=0.02)


def test_quantized_medusa_heads_count_for_quantizing() -> None:
    block = {"method": "Medusa", "maxDraftTokens": 63, "medusa": {"heads": {}}}
    model = alone("NVIDIA-L40S", spec(tensor=2, method="FP8"), speculation=block)
    heads = checkpoint("heads", "qwen2-0.5b")
    given = {"target": checkpoint("target", "vicuna-7b"), "heads": heads}

    # Each parameter of the target takes three bytes; target and heads are split over two GPUs.
    expected = (3 * 6738415616 + heads.bytes) / 2
    assert footprints(model, given)["target"].calibration == pytest.approx(expected, abs=1)


def test_tensor_parallelism_splits_all_but_the_embedding() -> None:
    whole, part = of("llama-3.1-70b"), of("llama-3.1-70b", spec(tensor=4))

    # A rank has (70.554e9 - 128256 x 8192) / 4 + 128256 x 8192 parameters of two bytes.
    assert part.parts["Weights"] / GIB == pytest.approx(34.32, abs=0.01)
    assert part.kv_per_token == whole.kv_per_token // 4
    assert part.parts["Activations"] < whole.parts["Activations"]


def test_a_rank_holds_at_least_one_key_value_head() -> None:
    # Eight ranks share four heads: each rank has one head, and two ranks have the same.
    assert of("qwen2-7b", spec(tensor=8)).kv_per_token == 56 * 1024 // 4


def test_pipeline_parallelism_splits_layers() -> None:
    need = of("llama-3.1-405b", spec(parallelism={"tensor": 8, "pipeline": 2}))

    # A rank has 63 of 126 layers and one of eight key/value heads, 128 values of two bytes.
    assert need.kv_per_token == 2 * 63 * 128 * 2


@pytest.mark.parametrize(("kind", "kib"), [("Auto", 128), ("FP8", 64), ("INT8", 64)])
def test_a_quantized_cache_takes_half(kind: str, kib: int) -> None:
    need = of("llama-3.1-8b", spec(quantization={"method": "FP8", "kvCache": kind}))

    assert need.kv_per_token == kib * 1024


def test_float32_takes_twice_of_everything() -> None:
    need, half = of("tinyllama-1.1b", spec(dtype="Float32")), of("tinyllama-1.1b")

    assert need.parts["Weights"] == 2 * half.parts["Weights"]
    assert need.kv_per_token == 2 * half.kv_per_token


def test_prebuilt_engine_has_the_size_of_its_files() -> None:
    prebuilt = {"prebuilt": {"pvc": {"claimName": "engines", "path": "x"}}}
    model = alone("NVIDIA-A10", spec(tensor=2, engine=prebuilt))
    files = checkpoint("target-engine", "vicuna-7b")
    given = {"target": checkpoint("target", "vicuna-7b"), "target-engine": files}

    assert footprints(model, given)["target"].parts["Weights"] == files.bytes // 2


def test_footprint_includes_draft_heads() -> None:
    block = {"method": "Eagle", "maxDraftTokens": 63, "eagle": {"checkpoint": {}}}
    model = alone("NVIDIA-L40S", spec(), speculation=block)
    heads = checkpoint("heads", "qwen2-0.5b")
    given = {"target": checkpoint("target", "vicuna-7b"), "heads": heads}

    need = footprints(model, given)["target"]

    assert need.parts["Heads"] == heads.bytes
    # EAGLE adds a decoder layer to the target's 32 layers.
    assert need.kv_per_token == 512 * 1024 * 33 // 32


def test_only_the_target_verifies_drafts() -> None:
    model = pair("NVIDIA-L40S", spec(), spec())
    same = {role: checkpoint(role, "tinyllama-1.1b") for role in ("target", "draft")}

    need = footprints(model, same)

    # For each sequence, the target computes logits for ten draft tokens and the next token; the
    # draft computes them only for the next token.
    assert need["target"].parts["Logits"] == 11 * need["draft"].parts["Logits"]
    # 2048 and ten tokens, rounded up to blocks of 64, and 2048 tokens.
    assert (need["target"].sequence, need["draft"].sequence) == (2112, 2048)


def test_a_step_holds_every_draft_of_a_batch() -> None:
    # 83 draft tokens and the next token for each of 128 sequences are more than maxNumTokens.
    limits = {"maxBatchSize": 128, "maxSeqLen": 2048, "maxNumTokens": 8192}
    block = {"method": "Lookahead", "lookahead": {}}
    need = [
        footprints(
            alone("NVIDIA-H200", spec(limits=limits), **more),
            {"target": checkpoint("target", "llama-3.1-8b")},
        )["target"]
        for more in ({}, {"speculation": block})
    ]

    plain, lookahead = (engine.parts["Activations"] for engine in need)
    assert lookahead * 8192 == plain * 128 * 84


def test_gathered_logits_take_room_of_both_models() -> None:
    given = {role: checkpoint(role, "tinyllama-1.1b") for role in ("target", "draft")}
    plain = footprints(pair("NVIDIA-L40S", spec(), spec()), given)
    model = pair("NVIDIA-L40S", spec(), spec(), {"acceptance": "Logits"})

    gathered = footprints(model, given)

    for role in given:
        assert gathered[role].parts["Logits"] > plain[role].parts["Logits"]


def test_footprint_has_all_experts_and_the_work_of_two() -> None:
    dense, experts = of("mistral-7b"), of("mixtral-8x7b")

    assert experts.parts["Weights"] > 6 * dense.parts["Weights"]
    assert dense.parts["Activations"] < experts.parts["Activations"]
    assert experts.parts["Activations"] < 2 * dense.parts["Activations"]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "vicuna-13b", "llama-3.2-1b"])
def test_a_dense_model_without_files_is_computed(name: str) -> None:
    row = models()[name]
    bare = Checkpoint("target", "0" * 64, "", 0, stated(row["config"]))

    need = footprints(alone("NVIDIA-H200", spec()), {"target": bare})["target"]

    assert need.parts["Weights"] / GIB == pytest.approx(row["weightsGiB"], abs=0.01)


def test_mixture_of_experts_without_files_has_no_footprint() -> None:
    bare = Checkpoint("target", "0" * 64, "", 0, stated(models()["mixtral-8x7b"]["config"]))

    assert footprints(alone("NVIDIA-H200", spec()), {"target": bare}) == {}


def test_a_model_without_facts_is_left_out() -> None:
    model = pair("NVIDIA-L40S", spec(), spec())
    tiny = checkpoint("draft", "tinyllama-1.1b")
    unknown = replace(tiny, facts=tiny.facts.model_copy(update={"layers": None}))
    given = {"target": checkpoint("target", "vicuna-7b"), "draft": unknown}

    assert set(footprints(model, given)) == {"target"}
