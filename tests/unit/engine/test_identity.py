"""Speculation does not change the answer: its tokens equal those of target-only decoding."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.images.backend.tensorrtllm.reference_engine.config import Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling
from specdec.images.backend.tensorrtllm.reference_engine.word_lists import WordList
from support.effort import examples
from support.oracle import Tiny
from support.reference_engines import ask, rounds
from unit.engine.conftest import Engine, Start

TARGET = Tiny()
DRAFT = Tiny(layers=1, hidden=16, heads=2, kv_heads=1, seed=1)
# Every choice of this model is a near tie, some closer than rounding errors.
TWINS = Tiny(vocab=96, twins=1e-7, seed=2)
EXACT_TWINS = Tiny(vocab=96, twins=0.0, seed=3)

RULES = [
    Sampling(),
    Sampling(top_k=5, temperature=0.7, seed=3),
    Sampling(top_p=0.8, temperature=1.3, seed=4),
    Sampling(top_k=20, top_p=0.9, seed=2**63 + 1, repetition_penalty=1.2),
    Sampling(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
    Sampling(end_id=3, min_length=9, bad_words=WordList(((5,), (7, 8)))),
]


def prompts(count: int, vocab: int) -> list[list[int]]:
    random = np.random.default_rng(11)
    return [random.integers(0, vocab, random.integers(1, 40)).tolist() for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=range(len(RULES)))
@pytest.mark.parametrize("tiny", [TARGET, TWINS, EXACT_TWINS], ids=["plain", "near", "tied"])
def test_rounds_give_the_plain_answer(
    tiny: Tiny, rules: Sampling, engine: Engine, start: Start
) -> None:
    target = start(engine(tiny))
    draft = start(engine(DRAFT if tiny is TARGET else tiny))
    cases = prompts(8, tiny.vocab)
    plain = [ask(target, prompt, 24, rules=rules).tokens() for prompt in cases]

    def speculate(case: tuple[int, list[int]]) -> list[int]:
        index, prompt = case
        # In a round's request, the answer so far is prompt: only the client can apply a minimum.
        if rules.min_length:
            return ask(target, prompt, 24, rules=rules).tokens()
        return rounds(target, draft, prompt, 24, 1 + index, rules=rules)[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(speculate, enumerate(cases))) == plain
        together = list(pool.map(lambda prompt: ask(target, prompt, 24, rules=rules), cases))
    assert [call.tokens() for call in together] == plain


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_drafts_give_the_plain_answer(data: st.DataObject, engine: Engine) -> None:
    """Drafts are right, wrong or half right, with or without KV reuse, in one or many rounds."""
    from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
        Scheduler,
        SchedulerLimits,
    )

    reuse = data.draw(st.booleans(), "reuse")
    rules = data.draw(st.sampled_from(RULES[:4]), "rules")
    model = engine(data.draw(st.sampled_from([TARGET, TWINS]), "model"))
    scheduler = Scheduler(model, SchedulerLimits(kv_reuse=reuse))
    try:
        prompt = data.draw(st.lists(st.integers(0, 95), min_size=1, max_size=40), "prompt")
        plain = ask(scheduler, prompt, 16, rules=rules).tokens()
        done = 0
        while done < len(plain):
            size = data.draw(st.integers(0, 8), "k")
            ahead = plain[done : done + size]
            right = data.draw(st.integers(0, len(ahead)), "right")
            wrong = data.draw(st.lists(st.integers(0, 95), max_size=8 - right), "wrong")
            call = ask(
                scheduler,
                prompt + plain[:done],
                len(plain) - done,
                rules=rules,
                draft=[*ahead[:right], *wrong] or None,
            )
            fresh = call.tokens()
            assert fresh == plain[done : done + len(fresh)]
            assert len(fresh) >= min(right + 1, len(plain) - done)
            done += len(fresh)
    finally:
        scheduler.close()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 2, 1), (2, 2, 1), (4, 3, 2), (3, 5, 7), (7, 7, 7)])
@pytest.mark.parametrize("rules", RULES[:4], ids=range(4))
def test_lookahead_gives_the_plain_answer(
    shape: tuple[int, int, int], rules: Sampling, engine: Engine, start: Start
) -> None:
    for tiny in (TARGET, TWINS):
        plain, drafting = start(engine(tiny)), start(engine(tiny), Lookahead(*shape))
        cases = prompts(6, tiny.vocab)
        together = [ask(plain, prompt, 40, rules=rules) for prompt in cases]
        expected = [call.tokens() for call in together]
        calls = [ask(drafting, prompt, 40, rules=rules) for prompt in cases]
        assert [call.tokens() for call in calls] == expected


@pytest.mark.slow
def test_lookahead_saves_steps_on_text_that_repeats(engine: Engine, start: Start) -> None:
    drafting = start(engine(Tiny(layers=1, seed=9)), Lookahead(5, 4, 5))
    calls = [ask(drafting, prompt, 100) for prompt in prompts(6, 97)]
    steps = sum(call.wait().steps for call in calls)
    assert sum(len(call.tokens()) for call in calls) > 1.3 * steps


def test_stop_words_and_limits_end_the_answer_alike(engine: Engine, start: Start) -> None:
    model = engine(TARGET)
    target, draft = start(model), start(model)
    for prompt in prompts(6, 97):
        free = ask(target, prompt, 20).tokens()
        fields: dict[str, Any] = {
            "stop_words": WordList(((free[5],), tuple(free[8:10]))),
            "rules": Sampling(end_id=free[12]),
        }
        plain = ask(target, prompt, 20, **fields).tokens()
        assert plain == free[: len(plain)]
        assert len(plain) <= 6 or free[5] in free[:5]
        for k in (1, 3, 8):
            ids, ended = list(prompt), False
            while not ended and len(ids) < len(prompt) + 20:
                drafts = ask(draft, ids, min(k, len(prompt) + 20 - len(ids))).tokens()
                room = len(prompt) + 20 - len(ids)
                fresh = ask(target, ids, room, draft=drafts, **fields).tokens()
                ids += fresh
                ended = len(ids) - len(prompt) == len(plain)
                assert ids[len(prompt) :] == plain[: len(ids) - len(prompt)]
