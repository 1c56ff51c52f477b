"""Train the draft to predict the target's tokens (Hinton et al. 2015; Zhou et al. 2023).

Speculation accepts a draft token if it is the target's own choice, so the target is the teacher.
Most of the text is continuations by the target, because the draft meets these when it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pair_training.checkpoint import save_arrays
from pair_training.data import Tokens, windows
from pair_training.model import DRAFT, TARGET, Params, empty_cache, forward, initialise, step
from pair_training.optimise import Plan, fit

TOP = 24
BATCH = 16
GENERATE_BATCH = 64
PREFIX_TOKENS = (8, 72)
SAMPLED_SHARE = 0.25
# Greedy speculation asks only for the target's first choice, so its distribution is sharpened. In
# a training of 500 steps, temperature 0.6 raised acceptance at 4 draft tokens from 48.9 to 51.8
# percent.
TEACHER_TEMPERATURE = 0.5


@dataclass(frozen=True)
class Lessons:
    """Training rows: tokens `[n, context]` and the target's best `TOP` choices after each token.

    `choices` are token ids and `log_probs` their natural logarithms, both `[n, context, TOP]`.
    """

    rows: NDArray[np.int32]
    choices: NDArray[np.int16]
    log_probs: NDArray[np.float16]


def continue_rows(
    params: Params, rows: jax.Array, lengths: jax.Array, sampled: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Let the target continue each of `rows` `[batch, context]` after its first `lengths` tokens.

    Rows marked in `sampled` `[batch]` draw from the target's distribution, the others are greedy.
    Returns the filled rows, and the choices and log probabilities of `Lessons`.
    """

    def advance(
        carry: tuple[jax.Array, dict[str, jax.Array]], at: jax.Array
    ) -> tuple[object, object]:
        token, cache = carry
        logits, cache = step(params, cache, token, at, TARGET)
        noise = jax.random.gumbel(jax.random.fold_in(key, at), logits.shape)
        chosen = jnp.argmax(logits + noise * sampled[:, None], axis=-1)
        given = rows[:, jnp.minimum(at + 1, TARGET.context - 1)]
        following = jnp.where(at + 1 < lengths, given, chosen).astype(jnp.int32)
        values, choices = jax.lax.top_k(jax.nn.log_softmax(logits), TOP)
        kept = (token, choices.astype(jnp.int16), values.astype(jnp.float16))
        return (following, cache), kept

    start = (rows[:, 0], empty_cache(TARGET, rows.shape[0]))
    _, (tokens, choices, values) = jax.lax.scan(advance, start, jnp.arange(TARGET.context))
    return tokens.T, choices.transpose(1, 0, 2), values.transpose(1, 0, 2)


def generated_lessons(
    target: Params,
    prefixes: NDArray[np.int32],
    sampled_share: float,
    report: Callable[[str], None],
    seed: int = 3,
) -> Lessons:
    """Let the target continue the first 8 to 71 tokens of each of `prefixes` `[n, context]`.

    `sampled_share` of the rows are drawn from its distribution, the others are greedy.
    """
    compiled = jax.jit(continue_rows)
    parts = []
    for first in range(0, len(prefixes), GENERATE_BATCH):
        rows = prefixes[first : first + GENERATE_BATCH]
        draw = np.random.default_rng([seed, first])
        lengths = draw.integers(*PREFIX_TOKENS, len(rows))
        sampled = (draw.random(len(rows)) < sampled_share).astype(np.float32)
        filled = compiled(
            target, jnp.asarray(rows), lengths, sampled, jax.random.key(seed + first)
        )
        parts.append(Lessons(*(np.asarray(part) for part in filled)))
        report(f"generated {first + len(rows)}/{len(prefixes)} rows")
    return _concatenated(parts)


def corpus_lessons(target: Params, tokens: Tokens, count: int, seed: int = 4) -> Lessons:
    """`count` rows of the corpus with the target's choices."""

    def judge(params: Params, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, choices = jax.lax.top_k(jax.nn.log_softmax(forward(params, rows, TARGET)), TOP)
        return choices.astype(jnp.int16), values.astype(jnp.float16)

    compiled = jax.jit(judge)
    parts = []
    for first in range(0, count, BATCH):
        rows = windows(tokens, np.arange(first, first + BATCH), TARGET.context, seed)
        choices, values = compiled(target, jnp.asarray(rows))
        parts.append(Lessons(rows, np.asarray(choices), np.asarray(values)))
    return _concatenated(parts)


def broad_lessons(
    target: Params, tokens: Tokens, count: int, report: Callable[[str], None]
) -> Lessons:
    """`count` continuations from anywhere in the corpus and half as many rows of the corpus."""
    prefixes = windows(tokens, np.arange(count), TARGET.context, 3)
    generated = generated_lessons(target, prefixes, SAMPLED_SHARE, report)
    return _concatenated([generated, corpus_lessons(target, tokens, count // 2)])


def kept(stored: Path, make: Callable[[], Lessons]) -> Lessons:
    """The lessons in the file `stored`, made first where it does not exist."""
    if not stored.exists():
        save_arrays(stored, vars(make()))
    with np.load(stored) as arrays:
        return Lessons(**arrays)


def _concatenated(parts: list[Lessons]) -> Lessons:
    return Lessons(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.choices for part in parts]),
        np.concatenate([part.log_probs for part in parts]),
    )


def divergence(params: Params, batch: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
    """Cross entropy, in nats, of the draft against the target's best choices, sharpened.

    It differs from the Kullback-Leibler divergence by a constant of the target.
    """
    rows, choices, log_probs = batch
    predicted = jax.nn.log_softmax(forward(params, rows, DRAFT))
    teacher = jax.nn.softmax(log_probs.astype(jnp.float32) / TEACHER_TEMPERATURE, axis=-1)
    scored = jnp.take_along_axis(predicted, choices.astype(jnp.int32), axis=-1)
    return -(teacher * scored).sum(-1).mean()


def train_draft(
    broad: Lessons,
    narrow: Lessons,
    steps: int,
    state_file: Path,
    report: Callable[[str], None],
    seed: int = 2,
) -> Params:
    """Train for `steps` batches of 16 rows, each epoch shuffled from `seed`.

    While the rate is high the rows are `broad`. While it falls, `narrow` rows are added, which
    resemble the requests that the draft will serve. On `narrow` rows alone the draft overfits
    their repetitions: 55.9 percent accepted at 4 draft tokens, against 57.7 with both.
    """
    plan = Plan(steps, adam_rate=4e-3, cooldown=0.57)
    both = _concatenated([broad, narrow])

    def batch(number: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        taught = broad if number < plan.falls_from else both
        count = len(taught.rows)
        indices = np.arange(number * BATCH, (number + 1) * BATCH)
        order = np.random.default_rng([seed, int(indices[0] // count)]).permutation(count)
        chosen = order[indices % count]
        return (
            jnp.asarray(taught.rows[chosen]),
            jnp.asarray(taught.choices[chosen]),
            jnp.asarray(taught.log_probs[chosen]),
        )

    return fit(initialise(DRAFT, seed), divergence, batch, plan, state_file, report)
