"""The BLS's loop against engines of a few lines: no token may change, whatever happens."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from unit.triton.loop import (
    END,
    MIN_NAMES,
    VOCABULARY,
    Meter,
    Model,
    parts,
    plain,
    task_module,
)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    draft_seed=st.integers(0, 3),
    length=st.integers(0, 8),
    max_tokens=st.integers(1, 40),
    minimum=st.integers(0, 12),
    min_name=st.sampled_from(MIN_NAMES),
    stops=st.lists(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=2), max_size=4),
    stream=st.booleans(),
)
def test_speculation_changes_no_token(
    seed: int,
    draft_seed: int,
    length: int,
    max_tokens: int,
    minimum: int,
    min_name: str,
    stops: list[list[int]],
    stream: bool,
) -> None:
    task = task_module.Task(
        prompt=(5, 6, 7),
        max_tokens=max_tokens,
        draft_tokens=length,
        min_tokens=minimum,
        min_name=min_name,
        end_id=END,
        stop_words=tuple(tuple(word) for word in stops),
        stream=stream,
        exclude_input=True,
    )
    meter = Meter()
    # Draft seed 0 is the target itself: everything is accepted.
    draft = Model(seed + draft_seed, verifies=False)
    target = Model(seed, verifies=True)
    found = parts(task, target, draft, meter)
    assert "".join(part.text for part in found) == plain(task, seed)
    assert stream or len(found) == 1
    assert sum(part.tokens for part in found) == meter.generated
    assert 0 <= meter.accepted <= meter.drafted
    if draft_seed == 0 and length:
        assert meter.accepted >= meter.generated - meter.rounds


class Restless:
    """A policy that changes its mind all the time: rounds of any length, and plain stretches."""

    def __init__(self, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.closed = 0
        self.seen: list[tuple[int, int]] = []

    def length(self) -> int:
        return self.numbers.choice([0, 0, 1, 2, 5])

    def plain_tokens(self) -> int:
        return self.numbers.randint(1, 4)

    def round(self, drafted: int, accepted: int, draft_seconds: float, seconds: float) -> None:
        assert draft_seconds >= 0
        assert seconds > 0
        self.seen.append((drafted, accepted))

    def plain(self, tokens: int, seconds: float) -> None:
        assert seconds > 0

    def close(self) -> None:
        self.closed += 1


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    draft_seed=st.integers(0, 1),
    max_tokens=st.integers(1, 40),
    minimum=st.integers(0, 12),
    stops=st.lists(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=2), max_size=3),
    stream=st.booleans(),
)
def test_no_order_of_rounds_and_plain_stretches_changes_a_token(
    seed: int,
    draft_seed: int,
    max_tokens: int,
    minimum: int,
    stops: list[list[int]],
    stream: bool,
) -> None:
    task = task_module.Task(
        prompt=(5, 6, 7),
        max_tokens=max_tokens,
        draft_tokens=4,
        adaptive=True,
        min_tokens=minimum,
        end_id=END,
        stop_words=tuple(tuple(word) for word in stops),
        stream=stream,
        exclude_input=True,
    )
    lengths = Restless(seed)
    draft, target = Model(seed + draft_seed, verifies=False), Model(seed, verifies=True)
    meter = Meter()
    found = parts(task, target, draft, meter, lengths=lengths)
    assert "".join(part.text for part in found) == plain(task, seed)
    assert lengths.closed == 1
    assert sum(accepted for _, accepted in lengths.seen) == meter.accepted


@pytest.mark.parametrize(("name", "other"), [MIN_NAMES, MIN_NAMES[::-1]])
def test_the_draft_is_forced_and_the_target_keeps_the_users_minimum(name: str, other: str) -> None:
    task = task_module.Task(
        prompt=(5,), max_tokens=12, draft_tokens=3, min_tokens=6, end_id=END, min_name=name
    )
    target, draft = Model(1, verifies=True), Model(1, verifies=False)
    parts(task, target, draft)
    for call in draft.calls:
        assert call[name].item() == call["request_output_len"].item()
        assert other not in call
    generated = [call["input_lengths"].item() - 1 for call in target.calls]
    for done, call in zip(generated, target.calls, strict=True):
        assert (name in call) == (done < 6)
        assert other not in call
        if done < 6:
            assert call[name].item() == 6 - done


def test_every_call_carries_bias_and_seed() -> None:
    common = {
        "embedding_bias": np.ones((1, VOCABULARY), np.float32),
        "random_seed": np.array([[9]], np.uint64),
    }
    task = task_module.Task(prompt=(5,), max_tokens=9, draft_tokens=2, common=common)
    target, draft = Model(1, verifies=True), Model(2, verifies=False)
    parts(task, target, draft)
    assert len(target.calls) > 1
    for call in target.calls + draft.calls:
        assert call["embedding_bias"] is common["embedding_bias"]
        assert call["random_seed"].item() == 9


def test_a_broken_draft_leaves_the_answer_to_the_target() -> None:
    task = task_module.Task(
        prompt=(5,), max_tokens=30, draft_tokens=4, end_id=END, exclude_input=True
    )
    meter = Meter()
    draft = Model(3, verifies=False, error_after=2)
    (part,) = parts(task, Model(3, verifies=True), draft, meter)
    assert part.text == plain(task, 3)
    assert meter.reasons == ["it broke"]


def test_a_refusing_target_is_an_error() -> None:
    task = task_module.Task(prompt=(5,), max_tokens=5, draft_tokens=2)
    target = Model(3, verifies=True, error_after=0)
    with pytest.raises(task_module.EngineError, match="it broke"):
        parts(task, target, Model(3, verifies=False))


def test_cancelling_ends_after_the_round() -> None:
    task = task_module.Task(prompt=(5,), max_tokens=40, draft_tokens=1, end_id=-1, stream=True)
    target = Model(4, verifies=True)
    found = parts(task, target, Model(5, verifies=False), cancelled=lambda: len(target.calls) >= 2)
    assert len(target.calls) == 2
    assert len(found) == 2


def test_a_plain_stream_makes_calls_of_growing_length() -> None:
    task = task_module.Task(prompt=(5,), max_tokens=30, end_id=-1, stream=True)
    target = Model(4, verifies=True)
    found = parts(task, target, None)
    assert [part.tokens for part in found] == [1, 2, 4, 8, 8, 7]
    asked = [int(call["request_output_len"].item()) for call in target.calls]
    assert asked == [1, 2, 4, 8, 8, 7]
    assert not any("streaming" in call for call in target.calls)


@pytest.mark.parametrize("name", ["return_generation_logits", "guided_decoding_guide"])
def test_what_spans_the_answer_stays_in_one_call(name: str) -> None:
    plain_inputs = {name: np.array([[True]])}
    task = task_module.Task(prompt=(5,), max_tokens=30, end_id=-1, stream=True, plain=plain_inputs)
    target = Model(4, verifies=True)
    (part,) = parts(task, target, None)
    assert part.tokens == 30
    assert len(target.calls) == 1


def test_log_probs_of_the_whole_answer() -> None:
    task = task_module.Task(
        prompt=(5,), max_tokens=12, draft_tokens=3, end_id=-1, log_probs=True, exclude_input=True
    )
    (part,) = parts(task, Model(6, verifies=True), Model(6, verifies=False))
    tokens = [ord(letter) - ord("0") for letter in part.text]
    assert part.log_probs == [-float(token) for token in tokens]
    assert part.cum_log_prob == pytest.approx(sum(part.log_probs))


def test_an_answer_without_its_prefix_is_refused() -> None:
    answer = {"output_ids": np.array([[[1, 2]]]), "sequence_length": np.array([[2]])}
    with pytest.raises(task_module.EngineError, match="exclude_input_in_output to false"):
        task_module.new_tokens(answer, 3, "tensorrt_llm")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", [("<",), ("=5",), ("zz", "<:"), ("never",)])
def test_stop_words_inside_a_chunk_cut_the_text(stream: bool, words: tuple[str, ...]) -> None:
    base = {
        "prompt": (5,),
        "max_tokens": 40,
        "draft_tokens": 5,
        "end_id": -1,
        "exclude_input": True,
    }
    full = plain(task_module.Task(**base), 11)
    ends = [full.find(word) + len(word) for word in words if word in full]
    task = task_module.Task(**base, stop_texts=words, stream=stream)
    found = parts(task, Model(11, verifies=True), Model(11, verifies=False))
    assert "".join(part.text for part in found) == full[: min(ends, default=len(full))]


@pytest.mark.parametrize("exclude", [False, True])
def test_draft_logits_pass_through(exclude: bool) -> None:
    class WithLogits(Model):
        @override
        def call(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
            answer = super().call(inputs, outputs)
            count = inputs["request_output_len"].item()
            assert "generation_logits" in outputs
            answer["generation_logits"] = np.full((1, 1, count, VOCABULARY), 2.0, np.float32)
            return answer

    task = task_module.Task(
        prompt=(5,), max_tokens=8, draft_tokens=3, use_draft_logits=True, exclude_input=exclude
    )
    target = Model(7, verifies=True)
    (part,) = parts(task, target, WithLogits(7, verifies=False))
    assert part.text.startswith("5") != exclude
    assert target.calls[0]["draft_logits"].shape == (1, 3, VOCABULARY)
