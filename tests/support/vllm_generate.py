"""Generates greedily with a real vLLM in a process of its own, 1.6 GB of memory for the pair."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import vllm_generate_program
from support.shipped_pair import PAIR
from support.vllm_tests import alone
from support.vllm_wheel import Installation

_TIMEOUT_SECONDS = 900
TARGET = {"model": str(PAIR / "target")}
# Tokens of an answer to a prompt of the pair.
NEW_TOKENS = 64
# A small cache, no compilation, and arithmetic that is the same for every batch.
SMALL = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 26, "seed": 0}


@dataclass(frozen=True)
class Generated:
    """The answers of an engine, and its counters of drafts.

    Attributes:
        tokens: the tokens of each answer.
        drafts, drafted, accepted: rounds with drafts, draft tokens, accepted draft tokens.
        positions: accepted draft tokens by their position in a draft.
        blocks, block_tokens: blocks of the cache, and tokens of a block.
    """

    tokens: list[list[int]]
    drafts: int
    drafted: int
    accepted: int
    positions: list[int]
    blocks: int
    block_tokens: int


def generate(
    installation: Installation,
    arguments: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    folder: Path,
    **environment: str,
) -> Generated:
    """Return the greedy answers to prompts of token ids, each with `max_tokens` tokens.

    Args:
        installation: the version.
        arguments: of vLLM's `LLM`, by name, besides SMALL.
        prompts: lists of token ids.
        max_tokens: tokens of each answer.
        folder: a folder for vLLM's caches.
        environment: further variables.

    Raises:
        AssertionError: the engine failed; the message has the end of its output.
    """
    body = {"arguments": SMALL | {**arguments}, "prompts": prompts, "max_tokens": max_tokens}
    with alone():
        done = subprocess.run(
            [str(installation.python), str(vllm_generate_program.__file__)],
            input=json.dumps(body),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            cwd=folder,
            env={
                **os.environ,
                **installation.environment(folder / "caches"),
                **environment,
            },
        )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    counters = result["counters"]
    blocks, block_tokens = result["blocks"]
    return Generated(
        tokens=result["tokens"],
        drafts=int(counters.get("drafts", 0)),
        drafted=int(counters.get("draft_tokens", 0)),
        accepted=int(counters.get("accepted_tokens", 0)),
        positions=[int(count) for count in counters.get("accepted_tokens_per_pos", [])],
        blocks=blocks,
        block_tokens=block_tokens,
    )
