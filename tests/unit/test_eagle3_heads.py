"""The EAGLE-3 heads of the shipped target: small, of the layout that servers load, accepted."""

import hashlib
import json
import stat

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from pair_training.heads_layout import HEADS, heads_config
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.inspection import inspect
from support import numpy_llama
from support.shipped_pair import EAGLE3, PAIR

LAYERS = 4
DRAFT_TOKENS = 3
NEW_TOKENS = 32
MANIFEST = json.loads((PAIR / "eagle3.json").read_text("utf-8"))


def test_config_is_that_of_the_target_and_names_the_states_that_the_heads_read() -> None:
    target = json.loads((PAIR / "target" / "config.json").read_text("utf-8"))
    config = json.loads((EAGLE3 / "config.json").read_text("utf-8"))
    assert config == heads_config(target, HEADS)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    layers = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert len(set(layers)) == 3
    assert all(0 < layer <= target["num_hidden_layers"] for layer in layers)


def test_weights_are_finite_halves_of_the_configured_shapes() -> None:
    stored = load_file(EAGLE3 / "model.safetensors")
    assert {name: value.shape for name, value in stored.items()} == HEADS.tensors()
    assert {str(value.dtype) for value in stored.values()} == {"float16"}
    assert all(np.isfinite(value).all() for value in stored.values())


def test_files_are_small_readable_and_match_the_manifest() -> None:
    files = list(EAGLE3.iterdir())
    digests = {
        path.relative_to(PAIR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    assert digests == MANIFEST["sha256"]
    assert sum(path.stat().st_size for path in files) == MANIFEST["bytes"] <= 1_000_000
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444, f"{path} is not readable by all"


def test_inspection_reads_eagle_3_heads_of_this_target() -> None:
    facts = inspect(EAGLE3, ArtifactKind.HEADS)
    target = inspect(PAIR / "target", ArtifactKind.CHECKPOINT)
    assert facts.method == "Eagle3"
    assert facts.layers == 1
    assert (facts.heads, facts.kv_heads) == (HEADS.heads, HEADS.kv_heads)
    assert facts.hidden_size == target.hidden_size
    assert facts.draft_vocab_size == facts.vocab_size == target.vocab_size
    assert facts.parameters == sum(int(np.prod(size)) for size in HEADS.tensors().values())


def test_manifest_reports_the_acceptance_that_is_promised() -> None:
    speculation = MANIFEST["speculation"]
    assert speculation["prompts"] == 50
    three = next(row for row in speculation["acceptance"] if row["draft_length"] == DRAFT_TOKENS)
    assert three["tokens_per_target_step"] >= 2.5
    by_position = three["accepted_percent_by_position"]
    assert by_position == sorted(by_position, reverse=True)


@pytest.mark.parametrize("line", [0, 20, 40])
def test_target_accepts_drafts_that_are_made_token_by_token(line: int) -> None:
    """The training computes all positions of a row at once; a server drafts as this test does."""
    target, heads = numpy_llama.weights(PAIR / "target"), numpy_llama.weights(EAGLE3)
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    text = json.loads((PAIR / "prompts.jsonl").read_text("utf-8").splitlines()[line])["prompt"]
    prompt = tokenizer.encode(text).ids
    ids = [*prompt]
    for _ in range(NEW_TOKENS):
        ids.append(int(numpy_llama.forward(target, ids, LAYERS)[-1].argmax()))
    stream = numpy_llama.states(target, ids, LAYERS)
    layers = json.loads((EAGLE3 / "config.json").read_text("utf-8"))["eagle_config"]
    read = [stream[layer] for layer in layers["eagle_aux_hidden_state_layer_ids"]]
    end, rounds = len(prompt) + 1, 0
    while end < len(ids):
        known = [state[: end - 1] for state in read]
        drafted = numpy_llama.eagle3_draft(heads, target, ids[:end], known, DRAFT_TOKENS)
        accepted = 0
        while accepted < DRAFT_TOKENS and ids[end : end + accepted + 1] == drafted[: accepted + 1]:
            accepted += 1
        end, rounds = end + accepted + 1, rounds + 1
    assert (NEW_TOKENS - 1) / rounds > 1.5
