"""Each field of `CheckpointFacts` is written by an inspector, and keeps its name in the status."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import inspect
from unit.jobs.checkpoints import config, write
from unit.jobs.test_artifact_inspection import MEDUSA, engine, medusa, put, shaped
from unit.mixtures import DEEPSEEK_R1

CHECKPOINT: dict[str, Any] = {
    "config.json": config(
        **DEEPSEEK_R1,
        bos_token_id=1,
        pad_token_id=2,
    ),
    "tokenizer.model": b"piece",
    "chat_template.jinja": b"{{ messages }}",
}
BLOCK_DRAFT = {
    **config(architectures=["DFlashDraftModel"]),
    "block_size": 16,
    "num_target_layers": 36,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 33]},
}
EAGLE3 = {**config(), "target_hidden_size": 8, "draft_vocab_size": 2}
LIMITS = {"max_batch_size": 8, "max_input_len": 64, "max_num_tokens": 8192}
WEIGHTS = {"model.safetensors": shaped(w=[4])}


def written(folder: Path) -> CheckpointFacts:
    """Return the facts of a checkpoint, of heads of each kind and of an engine, together."""
    facts = inspect(write(folder / "target", **CHECKPOINT))
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
