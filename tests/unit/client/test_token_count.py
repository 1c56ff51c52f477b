"""The number of tokens of an answer from a server that reports only why an answer ended."""

from __future__ import annotations

import asyncio

import pytest

from specdec.client.decoding_paths import PathAnswer, token_count
from specdec.client.errors import RefusedError


class Answers:
    """A model whose answer ends by itself after `tokens` tokens."""

    model = "m"
    has_baseline = False

    def __init__(self, tokens: int, reasons: tuple[str | None, str | None]) -> None:
        self.tokens, self.reasons = tokens, reasons
        self.limits: list[int] = []

    async def check(self) -> None:
        return None

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        self.limits.append(max_tokens)
        return PathAnswer("", reason=self.reasons[max_tokens >= self.tokens])


def answers(tokens: int) -> Answers:
    return Answers(tokens, ("length", "stop"))


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 100, 127, 128])
def test_answer_that_ends_by_itself_is_counted(tokens: int) -> None:
    path = answers(tokens)
    assert asyncio.run(token_count(path, "x", 128)) == tokens
    assert len(path.limits) <= 8


def test_answer_that_the_limit_ends_has_the_limits_tokens() -> None:
    path = answers(1000)
    assert asyncio.run(token_count(path, "x", 128)) == 128
    assert path.limits == [128]


def test_server_that_reports_no_reason_is_refused() -> None:
    with pytest.raises(RefusedError, match="no reason for the end of an answer"):
        asyncio.run(token_count(Answers(3, (None, None)), "x", 8))
