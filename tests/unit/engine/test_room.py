"""At the end of a sequence, the executor reserves room for the draft tokens of a step."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.images.backend.tensorrtllm.reference_engine.config import EngineConfig, Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.images.backend.tensorrtllm.reference_engine.request import Request
from specdec.images.backend.tensorrtllm.reference_engine.room import fitted
from support.engine_config import tiny_config
from support.oracle import Tiny
from support.reference_engines import ask
from unit.engine.conftest import Engine, Start

LONGEST = 384
DRAFTS = 16


def request(prompt: int, new: int, drafts: int | None = None) -> Request:
    draft = None if drafts is None else np.ones(drafts, np.int64)
    return Request(np.ones(prompt, np.int64), new, draft=draft)


@pytest.fixture
def config(engine: Engine) -> EngineConfig:
    return engine(Tiny()).config


@pytest.mark.parametrize(
    ("prompt", "new", "drafts", "most"),
    [
        # For a request without draft tokens, the executor reserves the engine's draft length.
        (300, 68, None, 68),
        (300, 69, None, 68),
        (367, 50, None, 1),
        # With draft tokens, it reserves only their number: the room is 384 - prompt - drafts.
        (367, 9, 8, 9),
        (368, 9, 8, 8),
        (375, 9, 8, 1),
        (382, 2, 1, 1),
    ],
)
def test_an_answer_leaves_the_draft_length_free(
    prompt: int,
    new: int,
    drafts: int | None,
    most: int,
    config: EngineConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert fitted(request(prompt, new, drafts), config).max_new == most
    assert ("exceed max_seq_len (384)" in caplog.text) == (most < new)


@given(prompt=st.integers(1, LONGEST - 1), new=st.integers(1, 60), drafts=st.integers(1, DRAFTS))
def test_a_verification_is_cut_when_prompt_and_twice_the_drafts_do_not_fit(
    prompt: int, new: int, drafts: int
) -> None:
    engine = longest(LONGEST)
    if prompt + drafts >= LONGEST:
        with pytest.raises(RequestError, match="send fewer draft tokens"):
            fitted(request(prompt, drafts + 1, drafts), engine)
        return
    kept = fitted(request(prompt, drafts + 1, drafts), engine).max_new
    assert (kept < drafts + 1) == (prompt + 2 * drafts + 1 > LONGEST)
    assert kept >= 1
    assert fitted(request(prompt, new, drafts), engine).max_new <= new


@given(limit=st.integers(8, 300), data=st.data())
def test_an_engine_with_room_for_its_drafts_never_cuts_below_the_users_limit(
    limit: int, data: st.DataObject
) -> None:
    """The BLS and the client rely on this for calls that stay within the user's limit."""
    engine = longest(limit + DRAFTS)
    prompt = data.draw(st.integers(1, limit - 1))
    drafts = data.draw(st.integers(0, min(DRAFTS, limit - prompt - 1)))
    asked = request(prompt, drafts + 1, drafts or None)
    assert fitted(asked, engine).max_new == drafts + 1
    plain = fitted(request(prompt, 1000), engine)
    assert prompt + plain.max_new == limit


def longest(tokens: int) -> EngineConfig:
    return tiny_config(max_seq_len=tokens, max_draft_len=DRAFTS)


def test_answers_end_where_the_room_ends(engine: Engine, start: Start) -> None:
    for shape in (None, Lookahead(3, 3, 3)):
        scheduler = start(engine(Tiny()), shape)
        assert len(ask(scheduler, [1] * 360, 50).tokens()) == 8
    scheduler = start(engine(Tiny()))
    # The drafts are the target's own tokens, so all are right; at 368 tokens, only eight fit.
    right = ask(scheduler, [1] * 350, 16).tokens()
    assert ask(scheduler, [1] * 350, 17, draft=right).tokens()[:16] == right
    assert ask(scheduler, [1] * 368, 9, draft=right[:8]).wait().error is None
    cut = ask(scheduler, [1] * 368, 9, draft=[1] * 8)
    assert 1 <= len(cut.tokens()) <= 8


def test_the_last_tokens_fit_into_a_cache_of_one_longest_sequence(
    engine: Engine, start: Start
) -> None:
    """The operator's smallest KV budget need not be a multiple of the block size."""
    for shape in (None, Lookahead(3, 3, 3)):
        scheduler = start(engine(Tiny()), shape, kv_tokens=LONGEST - 10)
        assert len(ask(scheduler, [1] * 350, 8).tokens()) == 8
