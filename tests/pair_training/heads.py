"""Train EAGLE-3 heads with the steps that they take when they serve ("training-time test").

The first step reads hidden states of the target, each further step the heads' own output. So a
training that shows them the target's states alone prepares them for the first draft token only.
The teacher is the target, on text that it wrote.
Sources: Li et al. 2025 (arXiv 2503.01840); its order of inputs and the weights of the steps are
those of the authors' program, github.com/SafeAILab/EAGLE.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pair_training.checkpoint import save_arrays
from pair_training.data import Tokens, windows
from pair_training.distil import TEACHER_TEMPERATURE, generated_lessons
from pair_training.heads_layout import HEADS, INPUT, LAYER, NORM, STATES
from pair_training.model import (
    EMBEDDING,
    FINAL_NORM,
    TARGET,
    Params,
    feed_forward,
    norm,
    predict,
    project,
    rotate,
    states,
)
from pair_training.optimise import Plan, fit

STEPS = 3
# A later draft token counts only where all before it were accepted.
STEP_WEIGHT = 0.8
BATCH = 8
# A share of the rows from anywhere in the corpus is drawn from the target's distribution.
SAMPLED_SHARE = 0.25
Kept = list[tuple[jax.Array, jax.Array]]


def initialise_heads(target: Params, seed: int) -> Params:
    """Draw initial weights: at first the heads pass the target's deepest state on.

    Norms are 1 (the last one is the target's), projections are normal with deviation
    1 / sqrt(fan_in), those into the residual stream are shrunk to a tenth.
    """
    random = np.random.default_rng(seed)
    params: Params = {}
    for name, size in HEADS.tensors().items():
        if len(size) == 1:
            params[name] = jnp.ones(size)
            continue
        scale = size[1] ** -0.5
        if name == INPUT or name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= 10
        params[name] = jnp.asarray(random.normal(0.0, scale, size), jnp.float32)
    params[INPUT] = params[INPUT].at[:, -HEADS.hidden :].add(jnp.eye(HEADS.hidden))
    return params | {NORM: target[FINAL_NORM]}


def head_step(
    params: Params, state: jax.Array, embedded: jax.Array, kept: Kept
) -> tuple[jax.Array, jax.Array]:
    """Draft one token after each position: draft step `len(kept)`.

    `state` and `embedded` are `[batch, time, hidden]`: what the step before gave (at first: what
    `fc` makes of the target's states), and the embedding of the token after it. `kept` holds the
    keys and values `[batch, heads, time, head_dim]` of the steps before and gets those of this
    one. Returns the new state, which the next step reads, and the input of the output head.
    """
    length = state.shape[1]
    both = jnp.concatenate(
        [
            norm(embedded, params[f"{LAYER}.input_layernorm.weight"], HEADS.eps),
            norm(state, params[f"{LAYER}.hidden_norm.weight"], HEADS.eps),
        ],
        axis=-1,
    )
    positions = jnp.arange(length) + len(kept)
    query = rotate(_split(both, params, "q", HEADS.heads), positions, HEADS.theta)
    key = rotate(_split(both, params, "k", HEADS.kv_heads), positions, HEADS.theta)
    value = _split(both, params, "v", HEADS.kv_heads)
    group = HEADS.heads // HEADS.kv_heads
    kept.append(
        (
            jnp.repeat(key, group, axis=2).transpose(0, 2, 1, 3),
            jnp.repeat(value, group, axis=2).transpose(0, 2, 1, 3),
        )
    )
    mixed = _attend_branch(query.transpose(0, 2, 1, 3) * HEADS.head_dim**-0.5, kept)
    x = state + project(mixed, params, f"{LAYER}.self_attn.o_proj")
    normed = norm(x, params[f"{LAYER}.post_attention_layernorm.weight"], HEADS.eps)
    x = x + feed_forward(normed, params, LAYER)
    return x, norm(x, params[NORM], HEADS.eps)


def _split(x: jax.Array, params: Params, part: str, count: int) -> jax.Array:
    projected = project(x, params, f"{LAYER}.self_attn.{part}_proj")
    return projected.reshape(*x.shape[:2], count, HEADS.head_dim)


def _attend_branch(query: jax.Array, kept: Kept) -> jax.Array:
    """Attend from each position to the first step up to it, and to its own later steps.

    `query` and all of `kept` are `[batch, heads, time, head_dim]`; returns `[batch, time, all]`.
    """
    batch, _, length, _ = query.shape
    key, value = kept[0]
    visible = jnp.tril(jnp.ones((length, length), bool))
    scores = [jnp.where(visible, query @ key.swapaxes(-1, -2), -1e9)]
    scores += [(query * own).sum(-1, keepdims=True) for own, _ in kept[1:]]
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    mixed = weights[..., :length] @ value
    for index, (_, own) in enumerate(kept[1:]):
        mixed += weights[..., length + index, None] * own
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def draft_logits(
    params: Params, stream: jax.Array, embedded: jax.Array, output: jax.Array, steps: int
) -> list[jax.Array]:
    """Logits `[batch, time, vocabulary]` of each of `steps` draft tokens after each position.

    `stream` is `[batch, time, 3 * hidden]`, the target's states; `embedded` `[batch, time,
    hidden]` the embedding of the row's tokens, and `output` `[vocabulary, hidden]` the output
    head. At position t, step j has read the tokens up to t + 1 + j and drafts token t + 2 + j.
    The last 1 + j positions of a row are meaningless, because they lack those tokens.
    """
    state, kept, logits = stream @ params[INPUT].T, [], []
    for index in range(steps):
        state, final = head_step(params, state, jnp.roll(embedded, -1 - index, axis=1), kept)
        logits.append(final @ output.T)
    return logits


def divergence(params: Params, batch: tuple[jax.Array, ...]) -> jax.Array:
    """Cross entropy, in nats, against the target's sharpened choices, over all draft steps."""
    stream, embedded, taught, output = batch
    teacher = jax.nn.softmax(taught / TEACHER_TEMPERATURE, axis=-1)
    length, total = stream.shape[1], jnp.zeros(())
    for index, logits in enumerate(draft_logits(params, stream, embedded, output, STEPS)):
        end = length - 1 - index
        predicted = jax.nn.log_softmax(logits[:, :end])
        nats = -(teacher[:, 1 + index :] * predicted).sum(-1).mean()
        total += STEP_WEIGHT**index * nats
    return total / sum(STEP_WEIGHT**index for index in range(STEPS))


@jax.jit
def teach(target: Params, rows: jax.Array) -> tuple[jax.Array, ...]:
    """What `rows` `[batch, time]` teach: states, embeddings, the target's logits, output head."""
    stream = states(target, rows, TARGET)
    read = jnp.concatenate([stream[index] for index in STATES], axis=-1)
    return read, stream[0], predict(target, stream[-1], TARGET), target[EMBEDDING]


def written_rows(
    target: Params,
    tokens: Tokens,
    openings: NDArray[np.int32],
    stored: Path,
    report: Callable[[str], None],
) -> NDArray[np.int32]:
    """Text of the target, `[n, context]`, read from `stored` or made first.

    It continues each of `openings` greedily, and half as many rows from anywhere in the corpus.
    """
    if not stored.exists():
        count = len(openings) // 2
        broad = windows(tokens, np.arange(count), TARGET.context, 3)
        parts = [
            generated_lessons(target, openings, 0.0, report).rows,
            generated_lessons(target, broad, SAMPLED_SHARE, report).rows,
        ]
        save_arrays(stored, {"rows": np.concatenate(parts).astype(np.int16)})
    with np.load(stored) as arrays:
        rows: NDArray[np.int32] = arrays["rows"].astype(np.int32)
    return rows


def train_heads(
    target: Params,
    rows: NDArray[np.int32],
    steps: int,
    state_file: Path,
    report: Callable[[str], None],
    seed: int = 6,
) -> Params:
    """Train for `steps` batches of 8 rows, each epoch shuffled from `seed`."""

    def batch(number: int) -> tuple[jax.Array, ...]:
        indices = np.arange(number * BATCH, (number + 1) * BATCH)
        order = np.random.default_rng([seed, int(indices[0] // len(rows))]).permutation(len(rows))
        return teach(target, jnp.asarray(rows[order[indices % len(rows)]]))

    return fit(initialise_heads(target, seed), divergence, batch, Plan(steps), state_file, report)
