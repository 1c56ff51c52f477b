"""The shipped target and draft: real checkpoints, a shared tokenizer, some skill in Python."""

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from support import numpy_llama
from support.shipped_pair import PAIR

ROLES = ("target", "draft")
SIZES = {
    "target": {"hidden": 256, "layers": 4, "heads": 4, "kv_heads": 2, "ffn": 608},
    "draft": {"hidden": 128, "layers": 1, "heads": 2, "kv_heads": 1, "ffn": 384},
}
VOCABULARY = 1024
END = "<|endoftext|>"
# Largest loss on SNIPPET, in nats per token; a uniform guess has a loss of ln 1024 = 6.93.
LARGEST_LOSS = {"target": 2.3, "draft": 3.4}

# This text was written for this test, so no training text contains it.
SNIPPET = '''\
def count_open_orders(orders, customer=None):
    """Return the number of orders that are not closed."""
    total = 0
    for order in orders:
        if customer is not None and order.customer != customer:
            continue
        if not order.closed:
            total += 1
    return total


class OrderError(Exception):
    def __init__(self, message, order):
        super().__init__(message)
        self.order = order

    def __repr__(self):
        return "%s(%r)" % (self.__class__.__name__, self.order)
'''


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def prompts() -> list[str]:
    lines = (PAIR / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))


def mean_loss(role: str, ids: list[int]) -> float:
    w = numpy_llama.weights(PAIR / role)
    logits = numpy_llama.forward(w, ids, SIZES[role]["layers"])[:-1].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    log_chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(-log_chances[np.arange(len(ids) - 1), ids[1:]].mean())


@pytest.mark.parametrize("role", ROLES)
def test_config_is_a_hugging_face_llama_of_the_agreed_size(role: str) -> None:
    config, size = read_json(PAIR / role / "config.json"), SIZES[role]
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["model_type"] == "llama"
    assert config["hidden_size"] == size["hidden"]
    assert config["num_hidden_layers"] == size["layers"]
    assert config["num_attention_heads"] == size["heads"]
    assert config["num_key_value_heads"] == size["kv_heads"]
    assert config["intermediate_size"] == size["ffn"]
    assert config["vocab_size"] == VOCABULARY
    assert config["tie_word_embeddings"] is True
    assert config["rope_theta"] == 10000.0


@pytest.mark.parametrize("role", ROLES)
def test_weights_are_finite_halves_of_the_configured_shapes(role: str) -> None:
    size, stored = SIZES[role], load_file(PAIR / role / "model.safetensors")
    hidden, ffn = size["hidden"], size["ffn"]
    kv = hidden // size["heads"] * size["kv_heads"]
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    expected = {"model.embed_tokens.weight": (VOCABULARY, hidden), "model.norm.weight": (hidden,)}
    for index in range(size["layers"]):
        expected |= {f"model.layers.{index}.{k}.weight": shape for k, shape in layer.items()}
    assert {name: value.shape for name, value in stored.items()} == expected
    assert {str(value.dtype) for value in stored.values()} == {"float16"}
    assert all(np.isfinite(value).all() for value in stored.values())


@pytest.mark.parametrize("role", ROLES)
def test_tokenizer_and_generation_agree_on_the_end(role: str) -> None:
    folder = PAIR / role
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = read_json(folder / "config.json")
    generation = read_json(folder / "generation_config.json")
    end = own.token_to_id(END)
    assert config["eos_token_id"] == generation["eos_token_id"] == end
    assert config["bos_token_id"] == generation["bos_token_id"] == end
    assert read_json(folder / "tokenizer_config.json")["eos_token"] == END
    assert read_json(folder / "special_tokens_map.json")["eos_token"] == END
    assert own.encode(f"x = 1\n{END}").ids[-1] == end
    assert own.decode([end]) == ""


def test_both_share_one_tokenizer() -> None:
    target, draft = ((PAIR / role / "tokenizer.json").read_bytes() for role in ROLES)
    assert target == draft


@pytest.mark.parametrize("text", [SNIPPET, "naïve café ☕\t\n\n  ", "", " x", "\r\n", "日本語"])
def test_tokenizer_gives_every_text_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert all(0 <= token < VOCABULARY for token in ids)


def test_tokenizer_fills_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert len(SNIPPET.encode()) / len(tokenizer.encode(SNIPPET).ids) > 2


def test_prompts_are_distinct_whole_lines_of_the_promised_length(tokenizer: Tokenizer) -> None:
    texts = prompts()
    assert len(set(texts)) == len(texts) >= 50
    assert all(text.endswith("\n") for text in texts)
    assert all(32 <= len(tokenizer.encode(text).ids) <= 64 for text in texts)


def test_files_are_small_readable_and_match_the_manifest() -> None:
    manifest = read_json(PAIR / "manifest.json")
    files = [path for role in ROLES for path in (PAIR / role).iterdir()]
    files.append(PAIR / "prompts.jsonl")
    digests = {
        path.relative_to(PAIR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    assert digests == manifest["sha256"]
    assert sum(path.stat().st_size for path in files) == manifest["bytes"] <= 8_000_000
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444, f"{path} is not readable by all"


def test_manifest_reports_the_acceptance_that_is_promised() -> None:
    speculation = read_json(PAIR / "manifest.json")["speculation"]
    four = next(row for row in speculation["acceptance"] if row["draft_length"] == 4)
    assert speculation["prompts"] == 50
    assert speculation["new_tokens"] == 128
    full = speculation["full_speculation"]
    assert full["identical_outputs"] == 50
    assert full["tokens_per_target_step"] == four["tokens_per_step_when_cut"] >= 3.25
    assert four["tokens_per_target_step"] >= 3.31
    assert four["accepted_percent"] >= 58


@pytest.mark.parametrize("role", ROLES)
def test_logits_predict_unseen_code_far_better_than_chance(
    tokenizer: Tokenizer, role: str
) -> None:
    ids = tokenizer.encode(SNIPPET).ids
    loss = mean_loss(role, ids)
    assert loss < LARGEST_LOSS[role]
    shuffled = np.random.default_rng(0).permutation(ids).tolist()
    assert mean_loss(role, shuffled) > loss + 1.5, "the order of the tokens must matter"


def test_target_predicts_better_than_draft(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(SNIPPET).ids
    assert mean_loss("target", ids) < mean_loss("draft", ids)
