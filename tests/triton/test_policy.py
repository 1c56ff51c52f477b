"""Adaptive draft lengths and a draft that fails never change the answers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from specdec.triton.plan import DraftLengths
from specdec.triton.repository import ModelPlan, RepositoryPlan
from support.shipped_pair import build
from support.triton_client import ask, text
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"
MOST = 6
CLIENTS = 8
# The draft's sequence limit, which answers exceed before they end.
SHORT = 40


@pytest.fixture(scope="module")
def failing_draft_server(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Yield a server with adaptive lengths; its draft refuses more than `SHORT` tokens."""
    folder = tmp_path_factory.mktemp("restless")
    draft = build(folder, "draft", "draft", mode="none", max_seq_len=SHORT)
    plan = replace(
        draft_target_plan,
        draft=ModelPlan(str(draft), (0,), max_tokens_in_paged_kv_cache=16384),
        adaptive=DraftLengths(0, MOST),
    )
    with serve(plan) as running:
        yield running


@pytest.fixture(scope="module")
def adaptive_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server with adaptive draft lengths of at least one token."""
    plan = replace(draft_target_plan, adaptive=DraftLengths(1, MOST))
    with serve(plan) as running:
        yield running


def answers(server: Server, prompts: list[str], model: str, **values: Any) -> list[str]:
    def one(prompt: str) -> str:
        values_of = {"text_input": prompt, "max_tokens": 64, "exclude_input_in_output": True}
        return text(ask(server.url, model, **values_of, **values))

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(one, prompts))


@pytest.fixture(scope="module")
def plain(adaptive_server: Server, prompts: list[str]) -> list[str]:
    """Return the answers of the target alone, the same model on both servers."""
    return answers(adaptive_server, prompts, "ensemble")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_adaptive_lengths_change_no_token(
    adaptive_server: Server, prompts: list[str], plain: list[str], stream: bool
) -> None:
    before = adaptive_server.metric("specdec_accepted_tokens_total")
    assert answers(adaptive_server, prompts, BLS, stream=stream) == plain
    assert adaptive_server.metric("specdec_accepted_tokens_total") > before
    assert 1 <= adaptive_server.metric("specdec_draft_length") <= MOST


def test_a_draft_length_of_the_request_is_kept(
    adaptive_server: Server, prompts: list[str]
) -> None:
    names = ("specdec_draft_tokens_total", "specdec_rounds_total")
    before = [adaptive_server.metric(name) for name in names]
    answers(adaptive_server, prompts[:4], BLS, num_draft_tokens=1, end_id=-1)
    drafted, rounds = (
        adaptive_server.metric(name) - first for name, first in zip(names, before, strict=True)
    )
    # Every round drafts one token, except a last round with room for only one token.
    assert rounds - 4 <= drafted <= rounds


def test_the_target_finishes_alone_where_the_draft_fails(
    failing_draft_server: Server, prompts: list[str], plain: list[str]
) -> None:
    before = failing_draft_server.metric("specdec_fallback_total")
    assert answers(failing_draft_server, prompts, BLS, num_draft_tokens=4) == plain
    assert failing_draft_server.metric("specdec_fallback_total") - before > len(prompts) / 2
    warnings = [
        line
        for line in failing_draft_server.log().splitlines()
        if "without the draft model" in line
    ]
    # The counter has the number of fallbacks; the log reports only the first.
    assert len(warnings) == 1


def test_adaptive_answers_are_equal_where_the_draft_fails(
    failing_draft_server: Server, prompts: list[str], plain: list[str]
) -> None:
    assert answers(failing_draft_server, prompts, BLS) == plain
    assert answers(failing_draft_server, prompts, BLS, stream=True) == plain
