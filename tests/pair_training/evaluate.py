"""Figures of the finished pair: held-out loss, acceptance by draft length, repetition, digests."""

from __future__ import annotations

import json
import platform
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pair_training.checkpoint import draft_state, read_checkpoint, sha256, write_bytes, write_json
from pair_training.data import Corpus, encode
from pair_training.model import DRAFT, TARGET, Params, Shape, empty_cache, forward, step
from pair_training.target import held_out_loss

NEW_TOKENS = 128
DRAFT_LENGTHS = (1, 2, 3, 4, 6, 8)
REPEAT = 8
PROVED_LENGTH = 4
# The last round of the longest draft may reach beyond the tokens that are counted.
GENERATED = NEW_TOKENS + max(DRAFT_LENGTHS)

Ids = list[int]


class Round(NamedTuple):
    """One draft and verify step: where it began in the output, tokens drafted and accepted."""

    start: int
    drafted: int
    accepted: int


def write_prompts(path: Path, prompts: list[dict[str, str]]) -> None:
    """Write prompts as JSON lines."""
    write_bytes(path, "".join(json.dumps(prompt) + "\n" for prompt in prompts).encode())


def read_prompts(path: Path, tokenizer: Tokenizer) -> list[Ids]:
    """The prompts as token ids."""
    lines = path.read_text().splitlines()
    return [tokenizer.encode(json.loads(line)["prompt"]).ids for line in lines]


def padded(rows: list[Ids], length: int) -> NDArray[np.int32]:
    """The rows as one table `[rows, length]`, filled up with token 0."""
    table = np.zeros((len(rows), length), np.int32)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def greedy(params: Params, prompts: list[Ids], shape: Shape) -> list[Ids]:
    """Each prompt's greedy continuation of `GENERATED` tokens, cached; no early end."""
    lengths = np.asarray([len(prompt) for prompt in prompts])
    total = int(lengths.max()) + GENERATED
    rows = jnp.asarray(padded(prompts, total))

    def advance(carry: tuple[Any, Any], at: jax.Array) -> tuple[object, object]:
        token, cache = carry
        logits, cache = step(params, cache, token, at, shape)
        given = rows[:, jnp.minimum(at + 1, total - 1)]
        following = jnp.where(at + 1 < lengths, given, logits.argmax(-1)).astype(jnp.int32)
        return (following, cache), following

    start = (rows[:, 0], empty_cache(shape, len(prompts)))
    _, chosen = jax.lax.scan(advance, start, jnp.arange(total - 1))
    table = np.asarray(chosen).T
    return [row[n - 1 : n - 1 + GENERATED].tolist() for row, n in zip(table, lengths, strict=True)]


@partial(jax.jit, static_argnums=2)
def _choices(params: Params, rows: jax.Array, shape: Shape) -> jax.Array:
    return forward(params, rows, shape).argmax(-1)


def _best_next(params: Params, rows: NDArray[np.int32], shape: Shape) -> NDArray[np.int32]:
    return np.asarray(_choices(params, jnp.asarray(rows), shape), np.int32)


def agreement(draft: Params, prompts: list[Ids], outputs: list[Ids]) -> list[list[bool]]:
    """For each output token: whether the draft, given all tokens before it, would choose it.

    That alone fixes what greedy speculation accepts at any draft length, because as long as tokens
    are accepted the draft sees exactly the target's own text.
    """
    full = [prompt + output for prompt, output in zip(prompts, outputs, strict=True)]
    best = _best_next(draft, padded(full, max(map(len, full))), DRAFT)
    return [
        (best[i, len(prompts[i]) - 1 : len(full[i]) - 1] == np.asarray(outputs[i])).tolist()
        for i in range(len(full))
    ]


def count_rounds(agrees: list[bool], draft_length: int, *, cut: bool) -> list[Round]:
    """Replay greedy speculation: each round gives the accepted tokens and one of the target's.

    With `cut` the last round drafts no further than token `NEW_TOKENS`, like a server that is
    asked for that many tokens. Without `cut` every round drafts in full, like a step in a long
    answer.
    """
    rounds: list[Round] = []
    at = 0
    while at < NEW_TOKENS:
        # The last token of a round comes from the target, so a round drafts one token less than it
        # may give.
        offered = min(draft_length, NEW_TOKENS - at - 1) if cut else draft_length
        accepted = 0
        while accepted < offered and agrees[at + accepted]:
            accepted += 1
        rounds.append(Round(at, offered, accepted))
        at += accepted + 1
    return rounds


def first_repeat(output: Ids) -> int:
    """Index of the token completing the first repeated 8-gram, or the length where none is."""
    seen: set[tuple[int, ...]] = set()
    for end in range(REPEAT, len(output) + 1):
        gram = tuple(output[end - REPEAT : end])
        if gram in seen:
            return end - 1
        seen.add(gram)
    return len(output)


def acceptance(
    agrees: list[list[bool]], outputs: list[Ids], draft_length: int
) -> dict[str, float]:
    """Acceptance over all prompts in percent of drafted tokens, and tokens per target step.

    A round counts as before the repetition when it begins before the token that completes the
    output's first repeated 8-gram. `tokens_per_step_when_cut` counts the answers as a server gives
    them, cut off at `NEW_TOKENS`; everything else is about rounds that draft in full.
    """
    early, late, cut = np.zeros(3), np.zeros(3), np.zeros(3)
    for row, output in zip(agrees, outputs, strict=True):
        border = first_repeat(output)
        for start, drafted, accepted in count_rounds(row, draft_length, cut=False):
            side = early if start < border else late
            side += (drafted, accepted, 1)
        for _, drafted, accepted in count_rounds(row, draft_length, cut=True):
            cut += (drafted, accepted, 1)
    return {
        "draft_length": draft_length,
        "accepted_percent": _percent(early + late),
        "tokens_per_target_step": _per_step(early + late),
        "tokens_per_step_when_cut": _per_step(cut),
        "accepted_percent_before_repeat": _percent(early),
        "accepted_percent_after_repeat": _percent(late),
        "tokens_per_step_before_repeat": _per_step(early),
    }


def _per_step(counts: NDArray[np.float64]) -> float:
    return round(float((counts[1] + counts[2]) / max(counts[2], 1)), 3)


def _percent(counts: NDArray[np.float64]) -> float:
    return round(100 * float(counts[1] / max(counts[0], 1)), 1)


def speculate(
    target: Params, draft: Params, prompts: list[Ids], draft_length: int
) -> tuple[list[Ids], int]:
    """Greedy speculation done in full, every draft token drafted and verified.

    All prompts advance together over one fixed-size table, without a cache, so that this shares no
    shortcut with `agreement`. Returns the outputs and the number of target steps.
    """
    total = max(map(len, prompts)) + NEW_TOKENS + draft_length
    table = padded(prompts, total)
    ends = np.asarray([len(prompt) for prompt in prompts])
    goals = ends + NEW_TOKENS
    steps = 0
    while (ends < goals).any():
        steps += int((ends < goals).sum())
        for offset in range(draft_length):
            guesses = _best_next(draft, table, DRAFT)
            for row, end in enumerate(ends):
                table[row, end + offset] = guesses[row, end + offset - 1]
        best = _best_next(target, table, TARGET)
        for row in np.flatnonzero(ends < goals):
            accepted, end = 0, int(ends[row])
            offered = min(draft_length, int(goals[row]) - end - 1)
            right = table[row, end : end + offered] == best[row, end - 1 : end + offered - 1]
            while accepted < offered and right[accepted]:
                accepted += 1
            table[row, end + accepted] = best[row, end + accepted - 1]
            ends[row] = end + accepted + 1
    outputs = [table[i, len(p) : goals[i]].tolist() for i, p in enumerate(prompts)]
    return outputs, steps


def write_figures(out: Path, work: Path, corpus: Corpus, tokenizer: Tokenizer) -> str:
    """Measure the pair in `out`, write its `manifest.json`, and return a one-line summary."""
    target, draft = read_checkpoint(out / "target"), read_checkpoint(out / "draft")
    held_out = encode(tokenizer, list(corpus.held_out.values()))
    prompts = read_prompts(out / "prompts.jsonl", tokenizer)
    generated = greedy(target, prompts, TARGET)
    agrees = agreement(draft, prompts, generated)
    outputs = [output[:NEW_TOKENS] for output in generated]
    table = [acceptance(agrees, outputs, length) for length in DRAFT_LENGTHS]
    proved, steps = speculate(target, draft, prompts, PROVED_LENGTH)
    identical = sum(left == right for left, right in zip(proved, outputs, strict=True))
    size = sum(path.stat().st_size for path in _shipped(out))
    manifest = {
        "corpus": {
            "python": platform.python_version(),
            "train_files": len(corpus.train),
            "train_bytes": sum(len(text.encode()) for text in corpus.train.values()),
            "held_out_files": sorted(corpus.held_out),
            "held_out_bytes_per_token": round(
                sum(len(text.encode()) for text in corpus.held_out.values()) / len(held_out), 2
            ),
        },
        "training": {
            "target": {"steps": steps_done(work / "target.npz")},
            "draft": {"steps": steps_done(draft_state(out, work))},
        },
        "held_out": {
            "target": held_out_loss(target, held_out, TARGET),
            "draft": held_out_loss(draft, held_out, DRAFT),
        },
        "speculation": {
            "prompts": len(prompts),
            "new_tokens": NEW_TOKENS,
            "outputs_that_repeat": sum(first_repeat(output) < NEW_TOKENS for output in outputs),
            "acceptance": table,
            "full_speculation": {
                "draft_length": PROVED_LENGTH,
                "identical_outputs": identical,
                "tokens_per_target_step": round(len(prompts) * NEW_TOKENS / steps, 3),
            },
        },
        "bytes": size,
        "sha256": {path.relative_to(out).as_posix(): sha256(path) for path in _shipped(out)},
    }
    write_json(out / "manifest.json", manifest)
    return f"{size} bytes, identical {identical}/{len(prompts)}, {json.dumps(table)}"


def _shipped(out: Path) -> list[Path]:
    """The two checkpoints and the prompts: what the manifest lists."""
    return sorted([*(out / "target").iterdir(), *(out / "draft").iterdir(), out / "prompts.jsonl"])


def steps_done(state_file: Path) -> int:
    """The number of steps after which a training state was stored."""
    with np.load(state_file) as stored:
        return int(stored["step"])
