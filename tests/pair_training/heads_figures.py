"""Figures of the finished heads: acceptance by draft length and by position, and digests."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from pair_training.checkpoint import heads_state, read_checkpoint, sha256, write_json
from pair_training.evaluate import NEW_TOKENS, Ids, greedy, padded, read_prompts, steps_done
from pair_training.heads import draft_logits, teach
from pair_training.heads_rounds import Agreement, acceptance
from pair_training.model import TARGET, Params

DRAFT_LENGTHS = (1, 2, 3, 4, 6)


@partial(jax.jit, static_argnums=2)
def _drafts(target: Params, heads: Params, steps: int, rows: jax.Array) -> jax.Array:
    """The draft tokens `[batch, time, steps]` after each position of `rows`."""
    stream, embedded, _, output = teach(target, rows)
    logits = draft_logits(heads, stream, embedded, output, steps)
    return jnp.stack([step.argmax(-1) for step in logits], axis=-1)


def agreement(
    target: Params, heads: Params, prompts: list[Ids], outputs: list[Ids]
) -> list[Agreement]:
    """For each token of an answer: whether a draft from there on is right, by its step.

    That alone fixes what greedy speculation accepts, because as long as tokens are accepted the
    heads read the target's own text.
    """
    steps = max(DRAFT_LENGTHS)
    full = [prompt + output for prompt, output in zip(prompts, outputs, strict=True)]
    rows = padded(full, max(map(len, full)))
    drafted = np.asarray(_drafts(target, heads, steps, jnp.asarray(rows)))
    results = []
    for row, prompt in enumerate(prompts):
        # Position t drafts from token t + 2 on.
        starts = np.arange(len(prompt), len(prompt) + NEW_TOKENS)
        chosen = rows[row][starts[:, None] + np.arange(steps)]
        results.append(drafted[row, starts - 2] == chosen)
    return results


def write_heads_figures(out: Path, work: Path, tokenizer: Tokenizer) -> str:
    """Measure the heads in `out`, write `eagle3.json` there, and return a one-line summary."""
    target, heads = read_checkpoint(out / "target"), read_checkpoint(out / "eagle3")
    prompts = read_prompts(out / "prompts.jsonl", tokenizer)
    agrees = agreement(target, heads, prompts, greedy(target, prompts, TARGET))
    table = [acceptance(agrees, length, NEW_TOKENS) for length in DRAFT_LENGTHS]
    files = sorted((out / "eagle3").iterdir())
    size = sum(path.stat().st_size for path in files)
    content = {
        "training": {"steps": steps_done(heads_state(out, work))},
        "speculation": {
            "prompts": len(prompts),
            "new_tokens": NEW_TOKENS,
            "acceptance": table,
        },
        "bytes": size,
        "sha256": {path.relative_to(out).as_posix(): sha256(path) for path in files},
    }
    write_json(out / "eagle3.json", content)
    return f"{size} bytes, {json.dumps(table)}"
