"""The number of tokens of an answer of the LLM API, which reports only why an answer ended."""

import asyncio
from typing import cast

import pytest
from typing_extensions import override

from specdec.client.grpc_calls import Server
from specdec.client.llm_api_path import LlmApiModel


class Answers(LlmApiModel):
    """A model whose answer ends by itself after `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__(cast(Server, None))
        self.tokens = tokens
        self.limits: list[int] = []

    @override
    async def _ask(self, prompt: str, max_tokens: int) -> tuple[str, str]:
        self.limits.append(max_tokens)
        return "", "length" if max_tokens < self.tokens else "stop"


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 100, 127, 128])
def test_answer_that_ends_by_itself_is_counted(tokens: int) -> None:
    model = Answers(tokens)
    assert asyncio.run(model.token_count("x", 128)) == tokens
    assert len(model.limits) <= 8


def test_answer_that_the_limit_ends_has_the_limits_tokens() -> None:
    model = Answers(1000)
    assert asyncio.run(model.token_count("x", 128)) == 128
    assert model.limits == [128]
