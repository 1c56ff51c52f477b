"""Engines of a few lines, and one answer made with them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from unit.triton.payload import load

task_module = load("specdec_bls.task")
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
        return self._answer(inputs)

    def _answer(self, inputs: dict[str, Any]) -> dict[str, Any]:
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
        answered = [*ids, *new]
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
    ahead: Any = None,
) -> list[Any]:
    answer = answer_module.Answer(
        task,
        target,
        draft,
        Letters(),
        lengths or policy.FixedLength(task.draft_tokens),
        meter or Meter(),
        cancelled or (lambda: False),
        ahead,
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
