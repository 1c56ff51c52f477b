"""The client's loop at the end of a sequence, where the target reserves room for draft tokens."""

import asyncio
from typing import Any

import pytest

from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError
from specdec.client.speculate import Options, Result, speculate
from unit.client.fake_pair import Next, Pair, careless, counting, served

LIMIT = 20
DRAFTS = 4
PROMPTS = ["a" * length for length in range(LIMIT - 2 * DRAFTS, LIMIT)]


def run(pair: Pair, prompts: list[str], **options: Any) -> list[Result]:
    with served(pair) as url:
        return asyncio.run(speculate(prompts, Options(**options), Connection(url)))


def alone(prompt: str) -> str:
    """Return what the target alone answers up to the limit."""
    ids = list(prompt.encode())
    while len(ids) < LIMIT:
        ids.append(counting(ids))
    return bytes(ids[len(prompt) :]).decode()


@pytest.mark.parametrize("draft_tokens", range(DRAFTS + 1))
@pytest.mark.parametrize("draft", [counting, careless])
def test_answers_reach_the_servers_limit(draft: Next, draft_tokens: int) -> None:
    pair = Pair(draft=draft, max_seq_len=str(LIMIT), room=(LIMIT + DRAFTS, DRAFTS))
    results = run(pair, PROMPTS, max_tokens=50, draft_tokens=draft_tokens)
    assert [result.text for result in results] == [alone(prompt) for prompt in PROMPTS]


def test_a_smaller_request_keeps_its_own_limit() -> None:
    pair = Pair(max_seq_len=str(LIMIT), room=(LIMIT + DRAFTS, DRAFTS))
    results = run(pair, PROMPTS, max_tokens=3, draft_tokens=DRAFTS)
    assert [result.text for result in results] == [alone(prompt)[:3] for prompt in PROMPTS]


def test_an_engine_without_room_for_its_drafts_shortens_answers() -> None:
    """The operator prevents this; the test shows that the fake engine does shorten answers."""
    pair = Pair(draft=counting, max_seq_len=str(LIMIT), room=(LIMIT, DRAFTS))
    results = run(pair, PROMPTS, max_tokens=50, draft_tokens=DRAFTS)
    assert any(result.text != alone(result.prompt) for result in results)


def test_a_prompt_that_leaves_no_token_is_refused() -> None:
    [result] = run(Pair(max_seq_len=str(LIMIT)), ["a" * LIMIT], max_tokens=5)
    assert isinstance(result.error, BadRequestError)
    assert "the prompt has 20 tokens, more than the limit of 19 at 127.0.0.1" in str(result.error)


@pytest.mark.parametrize("stated", ["", "0", "${max_seq_len}"])
def test_a_server_without_a_limit_bounds_nothing(stated: str) -> None:
    [result] = run(Pair(max_seq_len=stated), ["a"], max_tokens=6)
    assert result.text == "bcdefg"
