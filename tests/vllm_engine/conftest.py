"""Prompts, and the greedy answers that every method must repeat."""

import json

import pytest
from tokenizers import Tokenizer

from support.shipped_pair import PAIR

Ids = list[int]


@pytest.fixture(scope="session")
def prompts() -> list[Ids]:
    """Return the prompts of the shipped pair as token ids."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [list(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
