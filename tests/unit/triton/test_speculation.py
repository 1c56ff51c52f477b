"""The BLS's loop against engines of a few lines: no token may change, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from unit.triton.payload import load

task_module = load("specdec_bls.task")
speculation = load("specdec_bls.speculation")
answer_module = load("specdec_bls.answer")
policy = load("specdec_bls.policy")

VOCABULARY = 40
# As releases up to 0.19 spell it, and those from 1.2 on.
MIN_NAMES = ("min_length", "min_tokens")
END = 0


class Model:
    """A deterministic language: the next token is a function of the whole prefix."""

    def __init__(self, seed: int, *, verifies: bool, error_after: int | None = None) -> None:
        self.seed = seed
        self.verifies = verifies
        self.error_after = error_after
        self.calls: list[dict[str, Any]] = []

    def next(self, ids: list[int], minimum_left: int) -> int:
        token = random.Random(hash((self.seed, tuple(ids)))).randrange(VOCABULARY)
        return 1 if token == END and minimum_left > 0 else token

    def call(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
        self.calls.append(inputs)
        if self.error_after is not None and len(self.calls) > self.error_after:
            raise task_module.EngineError("it broke")
        return self._answer(inputs, whole=True)

    def stream(self, inputs: dict[str, Any], outputs: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        self.calls.append(inputs)
        answer = self._answer(inputs, whole=False)
        for index in range(int(answer["sequence_length"].item())):
            yield {
                "output_ids": answer["output_ids"][:, :, index : index + 1],
                "sequence_length": np.array([[1]]),
            }

    def _answer(self, inputs: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        ids = inputs["input_ids"][0].tolist()
        drafts = inputs.get("draft_input_ids", np.empty((1, 0), int))[0].tolist()
        named = [inputs[name] for name in MIN_NAMES if name in inputs]
        minimum = int(named[0].item()) if named else 0
        prefix = list(ids)
        new: list[int] = []
        for position in range(int(inputs["request_output_len"].item())):
            token = self.next(prefix, minimum - len(new))
            if token == END:
                break
            prefix.append(token)
            new.append(token)
            if self.verifies and drafts and (position >= len(drafts) or token != drafts[position]):
                break
        answered = [*ids, *new] if whole else new
        return {
            "output_ids": np.array([[answered]]),
            "sequence_length": np.array([[len(answered)]]),
            "output_log_probs": np.array([[[-float(token) for token in new]]]),
        }


class Letters:
    """One character per token; enough of a tokenizer for the loop."""

    def decode(self, ids: Any) -> str:
        return "".join(chr(ord("0") + token) for token in ids)


class Meter:
    def __init__(self) -> None:
        self.drafted = self.accepted = self.rounds = self.generated = 0
        self.reasons: list[str] = []

    def chunk(self, chunk: Any) -> None:
        self.drafted += chunk.drafted
        self.accepted += chunk.accepted
        self.rounds += chunk.rounds
        self.generated += len(chunk.tokens)

    def draft_failed(self, words: str) -> None:
        self.reasons.append(words)


def parts(
    task: Any,
    target: Model,
    draft: Model | None,
    meter: Meter | None = None,
    cancelled: Any = None,
    lengths: Any = None,
) -> list[Any]:
    answer = answer_module.Answer(
        task,
        target,
        draft,
        Letters(),
        lengths or policy.FixedLength(task.draft_tokens),
        meter or Meter(),
        cancelled or (lambda: False),
    )
    return list(answer.parts())


def plain(task: Any, seed: int) -> str:
    """The target alone, token by token, with the rules of the end written down once more."""
    model = Model(seed, verifies=True)
    ids = list(task.prompt)
    new: list[int] = []
    while len(new) < task.max_tokens:
        token = model.next(ids, task.min_tokens - len(new))
        if token == END:
            break
        ids.append(token)
        new.append(token)
        if any(tuple(ids[-len(word) :]) == word for word in task.stop_words):
            break
    return Letters().decode(new)


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
