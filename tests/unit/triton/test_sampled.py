"""Sampled answers: every call draws its own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from unit.triton.loop import Model, parts, task_module
from unit.triton.payload import MODELS, load

request_module = load("specdec_bls.request")
shared = load("specdec_text")

WORD = st.integers(0, 2**64 - 1)


@given(seed=WORD, first=st.integers(0, 4096), second=st.integers(0, 4096))
def test_every_call_has_a_seed_of_its_own(seed: int, first: int, second: int) -> None:
    seeds = {
        task_module.call_seed(seed, generated, apart=apart)
        for generated in {first, second}
        for apart in (False, True)
    }
    assert len(seeds) == 2 * len({first, second})
    assert all(0 <= one < 2**64 for one in seeds)
    assert task_module.call_seed(seed, 0, apart=False) == seed


@pytest.mark.parametrize("by_logits", [False, True])
def test_draft_and_target_share_numbers_only_by_tokens(by_logits: bool) -> None:
    target, draft = WithLogits(3, verifies=True), WithLogits(4, verifies=False)
    task = task_module.Task(
        prompt=(5, 6),
        max_tokens=9,
        draft_tokens=3,
        seed=11,
        use_draft_logits=by_logits,
        exclude_input=True,
    )
    parts(task, target, draft)
    seeds = [
        [int(call["random_seed"].item()) for call in engine.calls] for engine in (target, draft)
    ]
    rounds = len(seeds[1])
    assert rounds > 1
    assert len(set(seeds[0])) == len(seeds[0])
    assert seeds[0][0] == 11
    assert (seeds[0][:rounds] == seeds[1]) is not by_logits
    assert by_logits == set(seeds[0]).isdisjoint(seeds[1])


class WithLogits(Model):
    """Gives some logits along."""

    @override
    def _answer(self, inputs: dict[str, Any]) -> dict[str, Any]:
        answer = super()._answer(inputs)
        count = answer["sequence_length"].item() - inputs["input_ids"].size
        answer["generation_logits"] = np.ones((1, 1, count, 4), np.float32)
        return answer


@pytest.mark.parametrize(
    ("minimum", "name"), [("min_length", "random_seed"), ("min_tokens", "seed")]
)
@pytest.mark.parametrize(
    ("values", "seed"),
    [
        ({}, None),
        ({"max_tokens": 4}, None),
        ({"top_k": 5}, 0),
        ({"temperature": 0.5}, 0),
        ({"seed": 9}, 9),
        ({"random_seed": 2**64 - 1}, 2**64 - 1),
    ],
    ids=str,
)
def test_seed_of_a_request(
    values: dict[str, Any], seed: int | None, minimum: str, name: str
) -> None:
    server = request_module.Server(4, 8, 512, True, True, False, minimum, ())
    tokenizer = shared.Tokenizer(str(MODELS.parent / "pair" / "target"))
    given = {"text_input": np.array([[b"x"]], object), "max_tokens": np.array([[8]])}
    given |= {key: np.array([[value]]) for key, value in values.items()}
    (task,) = request_module.parse(given, server, tokenizer).tasks
    assert task.seed == seed
    assert task.seed_name == name
    assert not {"seed", "random_seed"} & set(task.common)
