"""The decoding path of TensorRT-LLM's LLM API on Triton: backend PyTorch.

Its answers have no token ids and no numbers of tokens. So the tokens of an answer are counted by
the limit at which the server no longer reports that the limit ended it.
"""

import asyncio
from contextlib import aclosing

import numpy as np

from specdec.client.decoding_paths import PathAnswer, require_inputs
from specdec.client.errors import RefusedError, UnreachableError
from specdec.client.fronts.llm_api import MAX_TOKENS, LlmApi
from specdec.client.grpc_calls import Calls, Server, Tensors
from specdec.client.request import Request
from specdec.client.transport import Model
from specdec.triton.model_names import TARGET

_REASON = "finish_reason"
_ENDED_BY_LIMIT = "length"


class LlmApiModel:
    """The only model of a server of the LLM API; it drafts by itself.

    Args:
        server: that has the model.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    async def check(self) -> None:
        """Check the inputs for text, for the limit and for the reason of the end."""
        await require_inputs(self._server, TARGET, ("text_input", MAX_TOKENS, f"return_{_REASON}"))

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Send one greedy request, which is answered as a whole."""
        text, _ = await self._ask(prompt, max_tokens)
        return PathAnswer(text)

    async def token_count(self, prompt: str, max_tokens: int) -> int:
        """How many tokens the greedy answer has, with its end token.

        This takes one request if the limit ends the answer, else up to eight for 128 tokens.
        """
        _, reason = await self._ask(prompt, max_tokens)
        least, most = 1, max_tokens
        if reason == _ENDED_BY_LIMIT:
            least = most
        while least < most:
            middle = (least + most) // 2
            _, reason = await self._ask(prompt, middle)
            if reason == _ENDED_BY_LIMIT:
                least = middle + 1
            else:
                most = middle
        return most

    async def _ask(self, prompt: str, max_tokens: int) -> tuple[str, str]:
        """The text of an answer, and why it ended."""
        server = self._server
        config = await server.config(TARGET)
        model = Model(
            frozenset(item.name for item in config.input),
            frozenset(item.name for item in config.output),
            streams=config.model_transaction_policy.decoupled,
        )
        request = Request(prompt, TARGET, max_tokens=max_tokens, top_k=1, stream=False)
        tensors = LlmApi(model).tensors(request) | {f"return_{_REASON}": np.array([True])}
        text = reason = ""
        try:
            async with (
                asyncio.timeout(server.timeout),
                Calls(server) as calls,
                aclosing(calls.parts(TARGET, tensors, ["text_output", _REASON])) as parts,
            ):
                async for part in parts:
                    text = _text(part, "text_output") or text
                    reason = _text(part, _REASON) or reason
        except TimeoutError:
            raise UnreachableError(
                f"no complete answer of {TARGET} at {server.url} within {server.timeout:g} s; "
                "request fewer tokens or increase the timeout"
            ) from None
        if not reason:
            raise RefusedError(f"model {TARGET} at {server.url} reports no {_REASON}")
        return text, reason


def _text(part: Tensors, name: str) -> str:
    """The only text of an output; empty if the response lacks it."""
    if name not in part or not part[name].size:
        return ""
    value = part[name].reshape(-1)[0]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
