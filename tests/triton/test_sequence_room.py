"""Answers up to the sequence limit: every decoding path gives the same tokens up to the end.

The engines limit answers as the executor does: they keep room for the draft tokens of a step.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from specdec.client.connection import Connection
from specdec.client.speculate import Options, speculate
from specdec.triton.repository import RepositoryPlan
from support.shipped_pair import LIMITS, MAX_DRAFT_TOKENS, PAIR
from support.triton_client import RefusedError, ask, text, tokens
from support.triton_server import Server
from triton.conftest import Serve

A = TypeVar("A")
B = TypeVar("B")

BLS, ENSEMBLE = "tensorrt_llm_bls", "ensemble"
LIMIT = LIMITS["maxSeqLen"]
# More tokens than any answer has room for, and no end token.
ASKED: dict[str, Any] = {"max_tokens": 100, "end_id": -1, "exclude_input_in_output": True}
CLIENTS = 8


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))


@pytest.fixture(scope="module")
def long_prompts(tokenizer: Any, prompts: list[str]) -> dict[int, str]:
    """Return prompts by size in tokens; at most 2 * MAX_DRAFT_TOKENS + 1 tokens fit after them."""
    whole = "\n".join(prompts * 4)
    by_size: dict[int, str] = {}
    for end in range(len(whole)):
        size = len(tokenizer.encode(whole[:end]).ids)
        if size > LIMIT:
            break
        by_size[size] = whole[:end]
    sizes = range(LIMIT - 2 * MAX_DRAFT_TOKENS - 1, LIMIT + 1)
    assert set(sizes) <= by_size.keys()
    return {size: by_size[size] for size in sizes}


@pytest.fixture(scope="module")
def served_prompts(long_prompts: dict[int, str]) -> dict[int, str]:
    """Return the prompts that leave room for at least one token."""
    return {size: prompt for size, prompt in long_prompts.items() if size < LIMIT}


@pytest.fixture(scope="module")
def plain(server: Server, tokenizer: Any, served_prompts: dict[int, str]) -> dict[int, list[int]]:
    """Return the tokens of the target alone by prompt size, from one engine call for each."""

    def alone(size: int) -> list[int]:
        ids = tokenizer.encode(served_prompts[size]).ids
        return engine(server, "tensorrt_llm", ids, 100)

    return dict(zip(served_prompts, parallel(alone, served_prompts), strict=True))


def engine(server: Server, model: str, ids: list[int], new: int, **more: Any) -> list[int]:
    [result] = ask(
        server.url,
        model,
        input_ids=np.array([ids], np.int32),
        input_lengths=len(ids),
        request_output_len=new,
        end_id=-1,
        **more,
    )
    return tokens(result, len(ids))


def answer(server: Server, prompt: str, model: str = BLS, **values: Any) -> str:
    return text(ask(server.url, model, text_input=prompt, **{**ASKED, **values}))


def parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(work, items))


def test_the_target_alone_reaches_the_users_limit(plain: dict[int, list[int]]) -> None:
    assert {size: size + len(ids) for size, ids in plain.items()} == dict.fromkeys(plain, LIMIT)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_answers_of_the_bls_equal_the_targets_to_the_last_token(
    server: Server,
    tokenizer: Any,
    served_prompts: dict[int, str],
    plain: dict[int, list[int]],
    stream: bool,
) -> None:
    before = server.metric("specdec_accepted_tokens_total")
    ways = [(size, k) for size in served_prompts for k in range(MAX_DRAFT_TOKENS + 1)]

    def speculate_with(way: tuple[int, int]) -> str:
        size, length = way
        return answer(server, served_prompts[size], num_draft_tokens=length, stream=stream)

    expected = [tokenizer.decode(plain[size]) for size, _ in ways]
    assert parallel(speculate_with, ways) == expected
    # Without accepted tokens the comparison would not test speculation.
    assert server.metric("specdec_accepted_tokens_total") - before > len(served_prompts)


def test_the_ensemble_reaches_the_same_token(
    server: Server, tokenizer: Any, served_prompts: dict[int, str], plain: dict[int, list[int]]
) -> None:
    whole = parallel(lambda size: answer(server, served_prompts[size], ENSEMBLE), plain)
    assert whole == [tokenizer.decode(ids) for ids in plain.values()]


def test_lookahead_reaches_the_same_token(
    lookahead_server: Server,
    tokenizer: Any,
    served_prompts: dict[int, str],
    plain: dict[int, list[int]],
) -> None:
    whole = parallel(lambda size: answer(lookahead_server, served_prompts[size]), plain)
    assert whole == [tokenizer.decode(ids) for ids in plain.values()]


@pytest.mark.parametrize("length", [1, 4, MAX_DRAFT_TOKENS])
def test_the_clients_loop_reaches_the_same_token(
    server: Server, served_prompts: dict[int, str], plain: dict[int, list[int]], length: int
) -> None:
    options = Options(max_tokens=100, draft_tokens=length, end_id=-1)
    prompts = list(served_prompts.values())
    results = asyncio.run(speculate(prompts, options, Connection(server.url), concurrency=CLIENTS))
    assert [result.error for result in results] == [None] * len(prompts)
    assert [list(result.tokens) for result in results] == list(plain.values())
    assert sum(result.accepted for result in results) > 0


@pytest.mark.parametrize("model", [BLS, ENSEMBLE])
def test_a_prompt_that_leaves_no_token_is_refused(
    server: Server, long_prompts: dict[int, str], model: str
) -> None:
    """At this length, the engine has room for draft tokens, but not for an answer."""
    sentence = f"text_input has {LIMIT} tokens, more than the limit of {LIMIT - 1} for a prompt"
    with pytest.raises(RefusedError, match=sentence):
        answer(server, long_prompts[LIMIT], model)
    assert answer(server, long_prompts[LIMIT - 1], model)


def test_without_room_for_drafts_answers_would_differ(
    serve: Serve, draft_target_plan: RepositoryPlan, served_prompts: dict[int, str]
) -> None:
    """The operator prevents this case, which shows that the engines here do limit answers."""
    built_for = LIMIT + 2 * MAX_DRAFT_TOKENS
    plan = replace(draft_target_plan, max_seq_len=built_for)
    with serve(plan) as server:

        def lengths(prompt: str) -> set[int]:
            """Return the lengths of the answers for several draft lengths; -1 is a refusal."""
            results = set()
            for length in (0, 1, MAX_DRAFT_TOKENS):
                try:
                    results.add(len(answer(server, prompt, num_draft_tokens=length)))
                except RefusedError:
                    results.add(-1)
            return results

        assert max(map(len, parallel(lengths, served_prompts.values()))) > 1
        assert f"exceed max_seq_len ({built_for})" in server.log()
