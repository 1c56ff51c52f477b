"""Method DFlash of the LLM API: facts of the draft, findings, warnings and memory.

Known from TensorRT-LLM's sources (_torch/speculative/dflash.py, _torch/models/modeling_dflash.py
and DFlashDecodingConfig in llmapi/llm_args.py): the draft uses embedding and output projection of
the target, reads the states of `target_layer_ids`, and computes at most a block of tokens, whose
first is known. A context of full length for each request is allocated beside the cache.
"""

from pathlib import Path
from typing import Any

import pytest

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Footprint
from specdec.backends.pytorch import memory
from specdec.jobs import artifact_inspection
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import configuration
from specdec.pipeline.validation import compatibility
from specdec.tools.dry_run import configuration as dry_run_configuration
from support.checkpoint_facts import by_role, stated
from unit.backends.pytorch_cases import problem, put, pytorch
from unit.jobs.test_artifact_inspection import put as files
from unit.jobs.test_artifact_inspection import shaped

Json = dict[str, Any]
# The configuration of z-lab/Qwen3-8B-DFlash-b16, reduced to what is read.
QWEN3: Json = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 4096,
    "vocab_size": 151936,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "block_size": 16,
    "num_target_layers": 36,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}
DRAFT: Json = {
    "method": "DFlash",
    "hiddenSize": 4096,
    "vocabSize": 151936,
    "layers": 5,
    "heads": 32,
    "kvHeads": 8,
    "headDim": 128,
    "maxPosition": 40960,
    "blockSize": 16,
    "maskToken": 151669,
    "targetLayers": 36,
    "capturedLayers": 5,
    "lastTargetLayer": 33,
}
TARGET: Json = {
    "architecture": "Qwen3ForCausalLM",
    "vocabSize": 151936,
    "hiddenSize": 4096,
    "intermediateSize": 12288,
    "layers": 36,
    "heads": 32,
    "kvHeads": 8,
    "headDim": 128,
    "maxPosition": 40960,
    "dtype": "bfloat16",
    "parameters": 8190735360,
}


def test_fetch_job_reads_the_facts_of_a_draft(tmp_path: Path) -> None:
    folder = files(
        tmp_path, **{"config.json": QWEN3, "model.safetensors": shaped(**{"fc.weight": [4, 8]})}
    )

    assert artifact_inspection.heads(folder).shown() == {
        **DRAFT,
        "architecture": "DFlashDraftModel",
        "parameters": 32,
        "tieEmbeddings": False,
    }


def test_configuration_is_judged_before_weights(tmp_path: Path) -> None:
    facts = configuration(files(tmp_path, **{"config.json": QWEN3}), ArtifactKind.HEADS).shown()

    judged = ("method", "blockSize", "maskToken", "targetLayers", "hiddenSize", "vocabSize")
    assert {name: facts[name] for name in judged} == {name: DRAFT[name] for name in judged}


def test_plan_reads_the_same_facts_from_the_configuration(tmp_path: Path) -> None:
    folder = files(tmp_path, **{"config.json": QWEN3})
    facts = dry_run_configuration.facts(folder, ArtifactKind.HEADS).shown()

    assert {name: facts[name] for name in DRAFT} == DRAFT


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dflash_config": {"markov_rank": 256}}, "DSpark"),
        ({"dflash_config": {"shift_label": True}}, "DSpark"),
        ({"dflash_config": {"projector_type": "DSpark"}}, "DSpark"),
        ({"markov_rank": 256}, "DSpark"),
        ({"architectures": ["Qwen3DSparkModel"]}, "DSpark"),
        ({"dflash_config": {"markov_rank": 0}}, "DFlash"),
        ({"dflash_config": None}, "DFlash"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "DFlash"),
        # An id of a block draft is no reason to fail.
        ({"dflash_config": {"target_layer_ids": ["a", True, -1, 10**9]}}, "DFlash"),
        ({"dflash_config": []}, "DFlash"),
    ],
)
def test_draft_of_dspark_is_not_one_of_dflash(tmp_path: Path, change: Json, expected: str) -> None:
    folder = files(tmp_path, **{"config.json": {**QWEN3, **change}})

    assert configuration(folder, ArtifactKind.HEADS).method == expected


@pytest.mark.parametrize(
    ("change", "target", "expected"),
    [
        ({}, {}, []),
        ({"method": "DSpark"}, {}, ["HeadsMethodMismatch"]),
        ({"method": "Eagle3"}, {}, ["HeadsMethodMismatch"]),
        ({"hiddenSize": 2048}, {}, ["HeadsHiddenSizeMismatch"]),
        ({"vocabSize": 32000}, {}, ["HeadsVocabSizeMismatch"]),
        ({"maskToken": 151936}, {}, ["HeadsVocabSizeMismatch"]),
        ({"maskToken": None}, {}, ["HeadsMethodMismatch"]),
        ({"capturedLayers": None}, {}, ["HeadsMethodMismatch"]),
        ({"targetLayers": 32}, {}, ["HeadsLayersMismatch"]),
        ({"targetLayers": None}, {"layers": 33}, ["HeadsLayersMismatch"]),
        ({"blockSize": 5}, {}, ["DraftLengthMismatch"]),
        ({"blockSize": 6}, {}, []),
        ({}, {"architecture": "Qwen2ForCausalLM"}, ["TargetArchitectureMismatch"]),
    ],
)
def test_draft_is_compared_with_the_target(
    change: Json, target: Json, expected: list[str]
) -> None:
    enforced = put(pytorch("DFlash", "1.3.0"), "checks", {"architecture": "Enforce"})
    model = SpeculativeModel.parse(enforced)
    facts = {"target": {**TARGET, **target}, "heads": {**DRAFT, **change}}

    refused = compatibility.judge(model, by_role(facts)).refused

    assert [str(finding.code) for finding in refused] == expected


def test_draft_length_that_fits_is_named() -> None:
    model = SpeculativeModel.parse(pytorch("DFlash", "1.3.0"))
    facts = {"target": TARGET, "heads": {**DRAFT, "blockSize": 4}}

    (finding,) = compatibility.judge(model, by_role(facts)).refused

    assert finding.message == (
        "the draft was trained on blocks of 4 tokens, the first of which is known, and "
        "maxDraftTokens is 5: set it to 3 at most"
    )


def test_reuse_of_blocks_has_a_warning() -> None:
    cr = pytorch("DFlash", "1.3.0")
    assert "kvCache.reuse false" in backends.warnings(SpeculativeModel.parse(cr))[0]
    put(cr, "target.kvCache", {"reuse": False})
    assert backends.warnings(SpeculativeModel.parse(cr)) == ()


def need(batch: int = 8, tensor: int = 1, draft: Json | None = None) -> dict[str, Footprint]:
    cr = put(pytorch("DFlash", "1.3.0"), "target.parallelism.tensor", tensor)
    limits = {"maxBatchSize": batch, "maxInputLen": 4096, "maxSeqLen": 8192, "maxNumTokens": 8192}
    put(cr, "target.limits", limits)
    assert problem(cr) == ""
    checkpoints = {
        "target": Checkpoint("target", "a" * 64, "", 16_381_516_992, stated(TARGET)),
        "heads": Checkpoint("heads", "b" * 64, "", 2 << 30, stated({**DRAFT, **(draft or {})})),
    }
    return dict(memory.footprints(SpeculativeModel.parse(cr), checkpoints))


def test_memory_of_a_draft_has_its_context_and_states_of_the_target() -> None:
    parts = need()["target"].parts

    # 20 KiB a token in 5 layers of 8 heads of 128 elements, for a slot more than requests.
    token = 2 * 5 * 8 * 128 * 2
    assert parts["DraftContext"] == 9 * (8192 + 2 * 5 + 6) * token
    assert parts["HiddenStates"] == 8192 * 5 * 4096 * 2
    assert parts["Heads"] == 2 << 30
    # The cache of the target has 36 layers of the same width.
    assert need()["target"].kv_per_token == token * 41 // 5


def test_context_of_a_draft_grows_with_the_batch_and_is_split_by_heads() -> None:
    one, two = need(8)["target"].parts, need(16)["target"].parts
    assert two["DraftContext"] * 9 == one["DraftContext"] * 17
    assert need(tensor=4)["target"].parts["DraftContext"] * 4 == one["DraftContext"]
    assert need(tensor=4)["target"].parts["HiddenStates"] == one["HiddenStates"]
    # No context is longer than the positions of the draft.
    assert (
        need(draft={"maxPosition": 4096})["target"].parts["DraftContext"] * 2
        < one["DraftContext"] * 1.01
    )


@pytest.mark.parametrize("fact", ["layers", "kvHeads", "headDim", "capturedLayers"])
@pytest.mark.parametrize("value", [None, 0, 2**62])
def test_memory_is_not_planned_without_the_sizes_of_the_draft(
    fact: str, value: int | None
) -> None:
    assert need(draft={fact: value}) == {}
