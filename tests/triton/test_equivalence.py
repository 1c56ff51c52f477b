"""Speculation changes no token: greedy answers of the BLS always equal those of the ensemble."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from support.shipped_pair import MAX_DRAFT_TOKENS, PAIR
from support.triton_client import ask, ask_once, text, tokens
from support.triton_server import Server

A = TypeVar("A")
B = TypeVar("B")

CLIENTS = 16
NEW_TOKENS = 32


@pytest.fixture(scope="session")
def plain_texts(server: Server, prompts: list[str]) -> list[str]:
    """Return the target's answers without speculation, from the ensemble."""
    return _in_parallel(
        lambda prompt: text(
            ask(
                server.url,
                "ensemble",
                text_input=prompt,
                max_tokens=NEW_TOKENS,
                exclude_input_in_output=True,
            )
        ),
        prompts,
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("length", range(1, MAX_DRAFT_TOKENS + 1))
def test_greedy_text_equals_the_ensemble(
    server: Server, prompts: list[str], plain_texts: list[str], length: int, stream: bool
) -> None:
    before = server.metric("specdec_accepted_tokens_total")

    def speculate(prompt: str) -> str:
        parts = ask(
            server.url,
            "tensorrt_llm_bls",
            text_input=prompt,
            max_tokens=NEW_TOKENS,
            num_draft_tokens=length,
            stream=stream,
            exclude_input_in_output=True,
        )
        assert stream or len(parts) == 1
        return text(parts)

    assert _in_parallel(speculate, prompts) == plain_texts
    # Without accepted tokens the comparison would not test speculation.
    assert server.metric("specdec_accepted_tokens_total") - before > len(prompts)


def test_the_ensemble_streams_the_same_text(
    server: Server, prompts: list[str], plain_texts: list[str]
) -> None:
    def streamed(prompt: str) -> tuple[int, str]:
        parts = ask(server.url, "ensemble", text_input=prompt, max_tokens=NEW_TOKENS, stream=True)
        return len(parts), text(parts)

    answers = _in_parallel(streamed, prompts)
    assert [answer for _, answer in answers] == plain_texts
    assert max(parts for parts, _ in answers) > 1


def test_greedy_tokens_equal_the_target(
    server: Server, prompts: list[str], plain_texts: list[str]
) -> None:
    """Compare token ids of the engines: calls for one round at a time, and one plain call."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))

    def both(prompt: str) -> tuple[list[int], list[int]]:
        ids = tokenizer.encode(prompt).ids
        return _plain(server, ids), _rounds(server, ids, 4)

    results = _in_parallel(both, prompts)
    assert [plain for plain, _ in results] == [speculative for _, speculative in results]
    assert [tokenizer.decode(plain) for plain, _ in results] == plain_texts


def test_the_unary_endpoint_gives_the_same_text(
    older_server: Server, prompts: list[str], plain_texts: list[str]
) -> None:
    def unary(prompt: str) -> str:
        values = {"max_tokens": NEW_TOKENS, "exclude_input_in_output": True}
        answer = ask_once(older_server.url, "tensorrt_llm_bls", text_input=prompt, **values)
        return text([answer])

    assert _in_parallel(unary, prompts) == plain_texts


def test_lookahead_gives_the_same_text(
    lookahead_server: Server, prompts: list[str], plain_texts: list[str]
) -> None:
    def answer(prompt: str) -> str:
        return text(
            ask(
                lookahead_server.url,
                "tensorrt_llm_bls",
                text_input=prompt,
                max_tokens=NEW_TOKENS,
                stream=True,
            )
        )

    assert _in_parallel(answer, prompts) == plain_texts


def test_sampled_text_follows_from_the_seed(server: Server, prompts: list[str]) -> None:
    def sample(prompt: str, seed: int, length: int, *, stream: bool = False) -> str:
        parts = ask(
            server.url,
            "tensorrt_llm_bls",
            text_input=prompt,
            max_tokens=NEW_TOKENS,
            temperature=1.0,
            top_k=20,
            random_seed=seed,
            num_draft_tokens=length,
            stream=stream,
            exclude_input_in_output=True,
        )
        return text(parts)

    for prompt in prompts[:5]:
        speculative = sample(prompt, 7, 4)
        assert sample(prompt, 7, 4, stream=True) == speculative
        assert sample(prompt, 8, 4) != speculative
        for stream in (False, True):
            plain = sample(prompt, 7, 0, stream=stream)
            assert sample(prompt, 7, 0, stream=stream) == plain


def _plain(server: Server, ids: list[int]) -> list[int]:
    (answer,) = ask(
        server.url,
        "tensorrt_llm",
        input_ids=np.array([ids], np.int32),
        input_lengths=len(ids),
        request_output_len=NEW_TOKENS,
        end_id=_END,
    )
    return tokens(answer, len(ids))


def _rounds(server: Server, prompt: list[int], length: int) -> list[int]:
    ids = list(prompt)
    while (left := NEW_TOKENS - (len(ids) - len(prompt))) > 0:
        prefix = {"input_ids": np.array([ids], np.int32), "input_lengths": len(ids)}
        extra: dict[str, object] = {}
        if left > 1:
            (draft,) = ask(
                server.url,
                "tensorrt_llm_draft",
                request_output_len=min(length, left - 1),
                **prefix,
            )
            extra["draft_input_ids"] = np.array([tokens(draft, len(ids))], np.int32)
        (answer,) = ask(
            server.url,
            "tensorrt_llm",
            request_output_len=min(length, left - 1) + 1,
            end_id=_END,
            **prefix,
            **extra,
        )
        new = tokens(answer, len(ids))
        if not new:
            break
        ids += new
    return ids[len(prompt) :]


_END = 0


def _in_parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(work, items))
