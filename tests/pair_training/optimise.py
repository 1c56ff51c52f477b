"""The optimiser and the resumable training loop that target and draft share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, muon

from pair_training.checkpoint import load_state, save_state
from pair_training.model import EMBEDDING, Params

Batch = Any
Loss = Callable[[Params, Batch], jax.Array]


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train.

    The rate rises over `warmup` steps, stays, and falls linearly to zero over the last `cooldown`
    share of `steps` (Hägele et al. 2024). Until the fall begins, a resumed training may change the
    number of steps.
    """

    steps: int
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    warmup: int = 40
    cooldown: float = 0.55
    report_every: int = 20
    save_every: int = 100

    @property
    def falls_from(self) -> int:
        """The step at which the rate begins to fall."""
        return self.steps - max(1, int(self.steps * self.cooldown))

    def rate(self, peak: float) -> optax.Schedule:
        """The schedule of a rate that peaks at `peak`."""
        falling = self.steps - self.falls_from
        return optax.join_schedules(
            [
                optax.linear_schedule(0.0, peak, self.warmup),
                optax.constant_schedule(peak),
                optax.linear_schedule(peak, 0.0, falling),
            ],
            [self.warmup, self.falls_from],
        )


def optimiser(params: Params, plan: Plan) -> optax.GradientTransformation:
    """Muon (Jordan 2024) for projections `[out, in]`, Adam for embedding and norms, clip at 1."""
    projection = MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        muon(
            plan.rate(plan.muon_rate),
            adam_learning_rate=plan.rate(plan.adam_rate),
            adam_b2=0.95,
            muon_weight_dimension_numbers={
                name: projection if value.ndim == 2 and name != EMBEDDING else None
                for name, value in params.items()
            },
        ),
    )


def fit(
    params: Params,
    loss: Loss,
    batches: Callable[[int], Batch],
    plan: Plan,
    state_file: Path,
    report: Callable[[str], None],
) -> Params:
    """Train `params` on `batches(step)`, resuming from `state_file` where it exists.

    `report` gets one line each `plan.report_every` steps: step, mean loss since the last line, and
    seconds per step.
    """
    transformation = optimiser(params, plan)

    def advance(state: Any, batch: Batch) -> tuple[Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(state[0], batch)
        updates, slots = transformation.update(gradient, state[1], state[0])
        return (optax.apply_updates(state[0], updates), slots), value

    compiled = jax.jit(advance, donate_argnums=0)
    fresh = (jax.tree.map(jnp.copy, params), transformation.init(params))
    state, done = load_state(state_file, fresh)
    losses: list[jax.Array] = []
    started = time.monotonic()
    for step in range(done, plan.steps):
        state, value = compiled(state, batches(step))
        losses.append(value)
        if (step + 1) % plan.report_every == 0 or step + 1 == plan.steps:
            mean = float(jnp.mean(jnp.stack(losses)))
            pace = (time.monotonic() - started) / len(losses)
            report(f"step {step + 1}/{plan.steps} loss {mean:.3f} {pace:.2f} s/step")
            losses, started = [], time.monotonic()
        if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
            save_state(state_file, state, step + 1)
    trained: Params = state[0]
    return trained
