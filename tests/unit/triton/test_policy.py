"""The adaptive draft length, against simulated engines whose costs follow their load."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.triton.payload import load

policy = load("specdec_bls.policy")
estimate = load("specdec_bls.estimate")

MOST = 8


@dataclass
class Engines:
    """Seconds of calls: flat until `knee` tokens are in a step, then proportional to them."""

    batch: int = 1
    step: float = 0.02
    draft_step: float = 0.002
    overhead: float = 0.0005
    knee: int = 64
    acceptance: float = 0.8

    def verify(self, length: int) -> float:
        tokens = self.batch * (length + 1)
        return self.step * max(1.0, tokens / self.knee) + self.overhead

    def draft(self, length: int) -> float:
        return length * self.draft_step * max(1.0, self.batch / self.knee) + self.overhead

    def plain(self) -> float:
        return self.step * max(1.0, self.batch / self.knee)

    def speed(self, length: int) -> float:
        if length == 0:
            return 1 / self.plain()
        tokens = policy.expected_tokens(length, self.acceptance)
        return float(tokens / (self.draft(length) + self.verify(length)))

    def best(self) -> float:
        return max(self.speed(length) for length in range(MOST + 1))


class Run:
    """Many answers in flight, of which one is followed: all of them do the same."""

    def __init__(self, engines: Engines, seed: int = 1, least: int = 0) -> None:
        self.engines = engines
        self.now = 100.0
        self.told: list[int] = []
        self.server = policy.AdaptiveLength(
            least, MOST, 4, self.told.append, clock=lambda: self.now
        )
        self.numbers = random.Random(seed)
        self.lengths: list[int] = []
        self._others: list[Any] = []
        self.load(engines.batch)
        self.answer = self._others[0]

    def load(self, batch: int) -> None:
        while len(self._others) < batch:
            self._others.append(self.server.answer())
        while len(self._others) > batch:
            self._others.pop().close()
        self.engines.batch = batch

    def go(self, rounds: int) -> float:
        """Tokens a second over so many rounds or stretches."""
        begun, tokens = self.now, 0.0
        for _ in range(rounds):
            tokens += self._round()
        return tokens / (self.now - begun)

    def _round(self) -> float:
        length = self.answer.length()
        self.lengths.append(length)
        noise = self.numbers.uniform(0.95, 1.05)
        if length == 0:
            count = self.answer.plain_tokens()
            seconds = noise * (count * self.engines.plain() + self.engines.overhead)
            self.now += seconds
            self.answer.plain(count, seconds)
            return float(count)
        accepted = 0
        while accepted < length and self.numbers.random() < self.engines.acceptance:
            accepted += 1
        draft, verify = noise * self.engines.draft(length), noise * self.engines.verify(length)
        self.now += draft + verify
        self.answer.round(length, accepted, draft, verify)
        # What the round gives on average: the policy is judged, not its luck.
        return float(policy.expected_tokens(length, self.engines.acceptance))


GRID = [
    Engines(batch=batch, acceptance=acceptance, step=step, draft_step=step * share)
    for batch in (1, 8, 16, 64)
    for acceptance in (0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97)
    for step, share in ((0.02, 0.1), (0.02, 0.3), (0.005, 0.1))
]


@pytest.mark.parametrize("engines", GRID, ids=str)
def test_never_far_from_the_best_fixed_length_nor_from_plain(engines: Engines) -> None:
    run = Run(engines)
    run.go(60)
    speed = run.go(1500)
    assert speed >= 0.97 * engines.best()
    assert speed >= 0.97 / engines.plain()


@pytest.mark.parametrize(("before", "after"), [(1, 64), (64, 1), (4, 32)])
def test_a_load_step_is_answered_within_twenty_rounds(before: int, after: int) -> None:
    run = Run(Engines(batch=before))
    run.go(400)
    run.load(after)
    run.go(20)
    assert run.go(300) >= 0.97 * run.engines.best()


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.2), (0.2, 0.9), (0.0, 0.8)])
def test_another_kind_of_text_is_answered_within_five_seconds(before: float, after: float) -> None:
    run = Run(Engines(batch=8, acceptance=before))
    run.go(400)
    run.engines.acceptance = after
    changed = run.now
    while run.now - changed < 5.0:
        run.go(1)
    assert run.go(300) >= 0.97 * run.engines.best()


@pytest.mark.parametrize("acceptance", [0.2, 0.6, 0.8, 0.95])
def test_a_settled_policy_seldom_changes(acceptance: float) -> None:
    run = Run(Engines(batch=8, acceptance=acceptance))
    run.go(300)
    begun, changes = run.now, len(run.told)
    run.go(1500)
    assert len(run.told) - changes <= run.now - begun


@settings(max_examples=200, deadline=None)
@given(
    least=st.integers(0, 3),
    more=st.integers(0, 6),
    start=st.integers(0, 12),
    seed=st.integers(0, 1000),
    acceptance=st.floats(0, 1),
)
def test_lengths_stay_in_their_bounds(
    least: int, more: int, start: int, seed: int, acceptance: float
) -> None:
    now = [0.0]
    server = policy.AdaptiveLength(
        least, least + more, start, lambda length: None, clock=lambda: now[0]
    )
    answer = server.answer()
    numbers = random.Random(seed)
    for _ in range(60):
        length = answer.length()
        assert least <= length <= least + more
        now[0] += numbers.random()
        if length:
            accepted = sum(numbers.random() < acceptance for _ in range(length))
            answer.round(length, accepted, numbers.random(), numbers.random())
        else:
            answer.plain(answer.plain_tokens(), numbers.random())
    answer.close()


@given(acceptance=st.floats(0, 1), length=st.integers(0, 20))
def test_expected_tokens_is_the_sum_of_the_series(acceptance: float, length: int) -> None:
    total = sum(acceptance**power for power in range(length + 1))
    assert policy.expected_tokens(length, acceptance) == pytest.approx(total, rel=1e-6)


def test_acceptance_is_that_of_the_request_once_it_has_spoken() -> None:
    server = estimate.Acceptance()
    for _ in range(50):
        server.add(4, 0, 1.0)
    own = estimate.Acceptance(prior=server)
    assert own.value(1.0) < 0.2
    for _ in range(20):
        own.add(4, 4, 1.0)
    assert own.value(1.0) > 0.85


@pytest.mark.parametrize("make", [lambda: policy.FixedLength(3)])
def test_a_fixed_length_never_moves(make: Callable[[], Any]) -> None:
    fixed = make()
    fixed.round(3, 0, 1.0, 1.0)
    assert fixed.length() == 3
    assert fixed.plain_tokens() == 0
