"""The client-side loop with a server for the draft and a server for the target (TwoServers)."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from specdec.client.connection import Connection
from specdec.client.speculate import Options, Result, speculate
from specdec.triton.repository import RepositoryPlan
from support.triton_client import ask, text, tokens
from support.triton_server import Server
from triton.conftest import Serve

NEW_TOKENS = 32
STOP = "\n\n"
ALONE: dict[str, Any] = {"draft": None, "draft_tokens": 0}


@pytest.fixture(scope="module")
def target_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the target alone, with streaming: its engine is decoupled."""
    plan = replace(draft_target_plan, **ALONE)
    with serve(plan) as running:
        yield running


@pytest.fixture(scope="module")
def draft_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the draft alone, in the layout of another release, without streaming."""
    draft = draft_target_plan.draft
    assert draft is not None
    plan = replace(draft_target_plan, target=draft, version="1.2.1", decoupled=False, **ALONE)
    with serve(plan) as running:
        yield running


def run(
    target: Server, draft: Server | None, prompts: list[str], options: Options
) -> list[Result]:
    other = None if draft is None else Connection(draft.url)
    return asyncio.run(speculate(prompts, options, Connection(target.url), other))


def control(server: Server, prompt: str, stop: tuple[str, ...] = ()) -> tuple[list[int], str]:
    """Return the ids and the text of the target alone, each from one plain request."""
    stop_words = {"STOP_WORDS_DICT": list(stop)} if stop else {}
    [prepared] = ask(
        server.url, "preprocessing", QUERY=prompt, REQUEST_OUTPUT_LEN=NEW_TOKENS, **stop_words
    )
    [answer] = ask(
        server.url,
        "tensorrt_llm",
        input_ids=prepared["INPUT_ID"],
        input_lengths=prepared["REQUEST_INPUT_LEN"],
        request_output_len=NEW_TOKENS,
        end_id=prepared["OUT_END_ID"],
        **({"stop_words_list": prepared["STOP_WORDS_IDS"]} if stop else {}),
    )
    values = {"text_input": prompt, "max_tokens": NEW_TOKENS, "exclude_input_in_output": True}
    plain = text(
        ask(server.url, "ensemble", **values, **({"stop_words": list(stop)} if stop else {}))
    )
    return tokens(answer, skip=prepared["INPUT_ID"].size), plain


@pytest.mark.parametrize("length", [1, 4, 8])
def test_two_servers_give_the_targets_tokens(
    target_server: Server, draft_server: Server, prompts: list[str], length: int
) -> None:
    asked = prompts[:24]
    options = Options(max_tokens=NEW_TOKENS, draft_tokens=length)
    results = run(target_server, draft_server, asked, options)
    assert [(list(r.tokens), r.text) for r in results] == [
        control(target_server, prompt) for prompt in asked
    ]
    for result in results:
        assert result.error is None
        assert sum(len(step.round.tokens) for step in result.steps) == len(result.tokens)
        assert max(step.round.drafted for step in result.steps) <= length
    # Without accepted tokens the comparison would not test speculation.
    assert sum(result.accepted for result in results) > len(asked)
    rounds = sum(len(result.steps) for result in results)
    assert rounds < sum(len(result.tokens) for result in results)


def test_stop_words_end_the_answer_where_the_target_does(
    target_server: Server, draft_server: Server, prompts: list[str]
) -> None:
    options = Options(max_tokens=NEW_TOKENS, stop_words=(STOP,))
    results = run(target_server, draft_server, prompts[:12], options)
    expected = [control(target_server, prompt, (STOP,)) for prompt in prompts[:12]]
    assert [list(result.tokens) for result in results] == [ids for ids, _ in expected]
    assert min(len(result.tokens) for result in results) < NEW_TOKENS


def test_one_server_with_both_models_gives_the_targets_tokens(
    server: Server, prompts: list[str]
) -> None:
    results = run(server, None, prompts[:8], Options(max_tokens=NEW_TOKENS))
    assert [list(r.tokens) for r in results] == [control(server, p)[0] for p in prompts[:8]]
    assert sum(result.accepted for result in results) > 0


def test_logits_come_with_every_round_on_request(
    target_server: Server, draft_server: Server, prompts: list[str]
) -> None:
    options = Options(
        max_tokens=NEW_TOKENS,
        draft_logits=True,
        accepted_logits=True,
        use_draft_logits=True,
        seed=3,
    )
    [result] = run(target_server, draft_server, prompts[:1], options)
    assert result.error is None
    for step in result.steps:
        assert step.accepted_logits is not None
        chosen = step.accepted_logits.argmax(axis=-1).tolist()
        assert chosen == list(step.round.tokens)
        drafted = 0 if step.draft_logits is None else len(step.draft_logits)
        assert drafted == step.round.drafted


def test_a_refused_prompt_does_not_affect_the_others(
    target_server: Server, draft_server: Server, prompts: list[str]
) -> None:
    too_long = "def f(x): return x\n" * 400
    options = Options(max_tokens=8)
    bad, good = run(target_server, draft_server, [too_long, prompts[0]], options)
    assert bad.error is not None
    assert bad.error.exit_status == 1
    assert good.error is None
    assert good.text
