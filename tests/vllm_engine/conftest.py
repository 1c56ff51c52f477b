"""Prompts, and the greedy answers that every method must repeat."""

import json

import pytest
from tokenizers import Tokenizer

from support.shipped_pair import PAIR
from support.vllm_generate import NEW_TOKENS, TARGET, Generated, generate
from support.vllm_tests import installed

Ids = list[int]


@pytest.fixture(scope="session")
def prompts() -> list[Ids]:
    """Return the prompts of the shipped pair as token ids."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [list(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]


@pytest.fixture(scope="session")
def plain(prompts: list[Ids], tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """Return the answers of vLLM without drafts."""
    folder = tmp_path_factory.mktemp("plain")
    return generate(installed(), TARGET, prompts, NEW_TOKENS, folder)
