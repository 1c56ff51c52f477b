"""The draft goes on while the target verifies: earlier rounds, the same tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from unit.triton.loop import END, Meter, Model, parts, plain, task_module
from unit.triton.payload import load
from unit.triton.test_speculation import Restless

ahead_module = load("specdec_bls.ahead")
SECONDS = 30
TASK = task_module.Task(
    prompt=(5, 6, 7), max_tokens=40, draft_tokens=3, end_id=END, exclude_input=True
)


@pytest.fixture
def draft() -> Model:
    return Model(3, verifies=False)


@pytest.fixture
def ahead(draft: Model) -> Iterator[Any]:
    made = ahead_module.DraftAhead(1, draft)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    # Threads of a test may be off the processor for long.
    monkeypatch.setattr(load("specdec_bls.speculation"), "_PATIENCE_SECONDS", SECONDS)


class Counted(Meter):
    """Also counts the rounds that needed no draft call of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.early = 0

    @override
    def chunk(self, chunk: Any) -> None:
        super().chunk(chunk)
        self.early += chunk.early


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10_000),
    draft_seed=st.integers(0, 2),
    length=st.integers(1, 6),
    max_tokens=st.integers(1, 30),
    minimum=st.integers(0, 12),
    stop=st.lists(st.integers(1, 39), max_size=2),
    restless=st.booleans(),
)
def test_no_token_changes(
    seed: int,
    draft_seed: int,
    length: int,
    max_tokens: int,
    minimum: int,
    stop: list[int],
    restless: bool,
) -> None:
    task = replace(
        TASK,
        max_tokens=max_tokens,
        draft_tokens=length,
        min_tokens=minimum,
        stop_words=(tuple(stop),) if stop else (),
    )
    draft, target = Model(seed + draft_seed, verifies=False), Model(seed, verifies=True)
    ahead, meter = ahead_module.DraftAhead(1, draft), Counted()
    lengths = Restless(seed) if restless else None
    found = parts(task, target, draft, meter, lengths=lengths, ahead=ahead)
    ahead.close()
    assert "".join(part.text for part in found) == plain(task, seed)
    assert meter.early <= meter.rounds
    if draft_seed == 0 and not restless:
        # A draft that is the target foresees every round behind the first.
        assert meter.early == meter.rounds - 1 or meter.generated >= max_tokens - 1


def test_a_draft_that_is_right_is_asked_once_in_the_way_of_the_answer(
    ahead: Any, draft: Model
) -> None:
    target, meter = Model(3, verifies=True), Counted()
    task = replace(TASK, end_id=-1, min_tokens=40)
    parts(task, target, draft, meter, ahead=ahead)
    assert (meter.rounds, meter.early) == (10, 9)
    # One call before the first round, then one behind each but the last.
    assert len(draft.calls) == 10
    assert meter.accepted == meter.drafted == 30


class Together(Model):
    """A target that answers only once the draft has been called beside it."""

    def __init__(self, seed: int, drafting: threading.Event) -> None:
        super().__init__(seed, verifies=True)
        self.drafting = drafting
        self.waited: list[bool] = []

    @override
    def call(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
        if int(inputs["request_output_len"].item()) == 4 and len(self.waited) < 3:
            self.waited.append(self.drafting.wait(SECONDS))
            self.drafting.clear()
        return super().call(inputs, outputs)


class Telling(Model):
    """A draft that says when it is asked for a guess and a proposal."""

    def __init__(self, seed: int, drafting: threading.Event) -> None:
        super().__init__(seed, verifies=False)
        self.drafting = drafting

    @override
    def call(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
        if int(inputs["request_output_len"].item()) == 4:
            self.drafting.set()
        return super().call(inputs, outputs)


def test_draft_and_target_work_at_the_same_time() -> None:
    drafting = threading.Event()
    target, draft = Together(3, drafting), Telling(3, drafting)
    ahead = ahead_module.DraftAhead(1, draft)
    parts(TASK, target, draft, ahead=ahead)
    ahead.close()
    assert target.waited == [True] * 3


def test_a_draft_that_fails_ahead_costs_nothing_but_that(ahead: Any, draft: Model) -> None:
    draft.error_after, meter = 1, Counted()
    found = parts(TASK, Model(3, verifies=True), draft, meter, ahead=ahead)
    assert found[0].text == plain(TASK, 3)
    # The call in the way of the answer fails as well, and says so once.
    assert meter.reasons == ["it broke"]
    assert meter.early == 0


@pytest.mark.parametrize("change", [{"seed": 7}, {"use_draft_logits": True}])
def test_what_is_drawn_never_depends_on_what_was_ready(
    ahead: Any, draft: Model, change: Any
) -> None:
    meter = Counted()
    parts(replace(TASK, **change), Model(3, verifies=True), draft, meter, ahead=ahead)
    assert meter.early == 0
    # One token more than a round's proposal would be the guess of a call ahead.
    assert draft.calls
    assert all(call["request_output_len"].item() <= TASK.draft_tokens for call in draft.calls)


def test_a_draft_that_died_ahead_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = threading.Event()

    class Dying(Model):
        @override
        def call(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
            if int(inputs["request_output_len"].item()) > TASK.draft_tokens:
                assert dead.wait(SECONDS)
            return super().call(inputs, outputs)

    monkeypatch.setattr(load("specdec_bls.speculation"), "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(ahead_module, "_LAST_SECONDS", 0.01)
    draft, meter = Dying(3, verifies=False), Counted()
    ahead = ahead_module.DraftAhead(1, draft)
    found = parts(TASK, Model(3, verifies=True), draft, meter, ahead=ahead)
    ahead.close()
    assert found[0].text == plain(TASK, 3)
    assert meter.early == 0
    dead.set()


def test_only_so_many_answers_at_once(ahead: Any) -> None:
    running, go = threading.Event(), threading.Event()

    def slow() -> list[int]:
        running.set()
        assert go.wait(SECONDS)
        return [1, 2]

    first = ahead.start(slow)
    assert running.wait(SECONDS)
    assert ahead.start(slow) is None
    go.set()
    assert first.result(SECONDS).tokens == [2]
    assert ahead.start(lambda: [3]).result(SECONDS).guess == 3
