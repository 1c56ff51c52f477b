"""Train the target: next-token prediction on the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pair_training.data import Tokens, windows
from pair_training.model import TARGET, Params, Shape, forward, initialise
from pair_training.optimise import Plan, fit

BATCH = 8


def cross_entropy(params: Params, rows: jax.Array, shape: Shape) -> jax.Array:
    """Mean negative log likelihood, in nats per token, of `rows` `[batch, length + 1]`."""
    logits = forward(params, rows[:, :-1], shape)
    return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()


def train_target(
    tokens: Tokens, steps: int, state_file: Path, report: Callable[[str], None], seed: int = 1
) -> Params:
    """Train for `steps` batches of 8 windows of 257 tokens; see `optimise.fit` for resuming."""

    def batch(step: int) -> jax.Array:
        indices = np.arange(step * BATCH, (step + 1) * BATCH)
        return jnp.asarray(windows(tokens, indices, TARGET.context + 1, seed))

    def loss(params: Params, rows: jax.Array) -> jax.Array:
        return cross_entropy(params, rows, TARGET)

    return fit(initialise(TARGET, seed), loss, batch, Plan(steps), state_file, report)


def held_out_loss(params: Params, tokens: Tokens, shape: Shape) -> dict[str, float]:
    """Loss in nats per token and share of right first guesses over all held-out windows."""

    def measure(params: Params, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = forward(params, rows[:, :-1], shape)
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()
        return nats, (logits.argmax(-1) == rows[:, 1:]).mean()

    compiled = jax.jit(measure)
    length = shape.context + 1
    count = len(tokens) // length // BATCH * BATCH
    rows = tokens[: count * length].reshape(-1, BATCH, length).astype(np.int32)
    results = np.asarray([compiled(params, jnp.asarray(part)) for part in rows])
    loss, right = results.mean(axis=0)
    return {"loss": round(float(loss), 4), "top1": round(float(right), 4)}
