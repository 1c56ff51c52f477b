"""Each field of `CheckpointFacts` is written by an inspector, and keeps its name in the status."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import inspect
from specdec.jobs.tokenizer_difference import compared
from unit.jobs.checkpoints import config, tokenizer, write
from unit.jobs.test_artifact_inspection import MEDUSA, engine, medusa, put, shaped
from unit.mixtures import DEEPSEEK_R1

CHECKPOINT: dict[str, Any] = {
    "config.json": config(
        **{
            **DEEPSEEK_R1,
            "bos_token_id": 1,
            "pad_token_id": 2,
            "index_head_dim": 128,
            "partial_rotary_factor": 0.5,
            "quantization_config": {"quant_method": "fp8", "ignore": ["self_attn"]},
            "layer_types": ["full_attention", "sliding_attention", "linear_attention"],
            "sliding_window": 16,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 8,
            "linear_num_key_heads": 1,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 4,
            "linear_value_head_dim": 4,
            "linear_conv_kernel_dim": 4,
        }
    ),
    "tokenizer.model": b"piece",
    "chat_template.jinja": b"{{ messages }}",
}
OTHER_TOKENS = {"tokenizer.json": tokenizer({"b": 1, "a": 2})}
BLOCK_DRAFT = {
    **config(architectures=["DFlashDraftModel"], v_head_dim=2),
    "block_size": 16,
    "num_target_layers": 36,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 33]},
}
EAGLE3 = {
    **config(),
    "target_hidden_size": 8,
    "draft_vocab_size": 2,
    "speculators_model_type": "eagle3",
    "speculators_config": {"verifier": {"name_or_path": "acme/model"}},
}
LIMITS = {"max_batch_size": 8, "max_input_len": 64, "max_num_tokens": 8192}
WEIGHTS = {"model.safetensors": shaped(w=[4])}


def written(folder: Path) -> CheckpointFacts:
    """Return the facts of a checkpoint, of heads of each kind and of an engine, together."""
    facts = inspect(write(folder / "compressed", **{"config.json": config(compress_ratios=[4])}))
    facts = facts.updated(inspect(write(folder / "target", **CHECKPOINT)))
    pair = {"target": write(folder / "pair"), "draft": write(folder / "draft", **OTHER_TOKENS)}
    differing = compared({role: inspect(own) for role, own in pair.items()}, pair)["draft"]
    facts = differing.updated(facts)
    for name, files in (
        ("medusa", {"config.json": MEDUSA, "heads.safetensors": medusa(5)}),
        ("eagle3", {"config.json": EAGLE3, **WEIGHTS}),
        ("dflash", {"config.json": BLOCK_DRAFT, **WEIGHTS}),
    ):
        facts = facts.updated(inspect(put(folder / name, **files), ArtifactKind.HEADS))
    built = put(
        folder / "engine", **{"config.json": engine(1, **LIMITS)}, **{"rank0.engine": b"engine"}
    )
    return facts.updated(inspect(built, ArtifactKind.ENGINE))


@pytest.mark.parametrize("field", CheckpointFacts.model_fields)
def test_an_inspector_writes_the_field(field: str, tmp_path: Path) -> None:
    assert getattr(written(tmp_path), field) is not None


def test_facts_are_the_same_after_the_message_of_a_job(tmp_path: Path) -> None:
    facts = written(tmp_path)
    message = json.loads(json.dumps(facts.shown()))
    assert CheckpointFacts.model_validate(message) == facts
    assert {"vocabSize", "kvHeads", "pagedContextFmha"} <= message.keys()


def test_facts_of_an_earlier_release_lack_some() -> None:
    facts = CheckpointFacts.model_validate({"vocabSize": 4, "findings": []})
    assert facts == CheckpointFacts(vocab_size=4)
