"""The decoding paths that verification compares: BLS or ensemble, target alone, client loop.

`verification` and the verification Job run prompts through two of them. All paths decode greedily,
so equal answers are expected.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from specdec.client import tokenization
from specdec.client.answer import ALWAYS, Counts, chunk
from specdec.client.connection import Connection
from specdec.client.engine import Engine
from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.grpc_calls import Calls, Server, Tensors
from specdec.client.request import Request
from specdec.client.sampling import Sampling
from specdec.client.speculate import Options, speculate
from specdec.triton.model_names import DRAFT, ENSEMBLE, POSTPROCESSING, PREPROCESSING, TARGET

_ENGINE_INPUTS = ("input_ids", "input_lengths", "request_output_len")


@dataclass(frozen=True)
class PathAnswer:
    """One answer.

    Attributes:
        text: the generated text.
        ids: its token ids; None if the path returns only text.
        counts: drafted and accepted tokens; None if not reported.
        rounds: number of rounds with a draft; None if not reported.
    """

    text: str
    ids: tuple[int, ...] | None = None
    counts: Counts | None = None
    rounds: int | None = None


class DecodingPath(Protocol):
    """One way to generate an answer. Both methods raise the errors of `grpc_calls.Server`."""

    async def check(self) -> None:
        """Check that the server has the models and inputs of this path.

        Raises:
            BadRequestError: a model or an input is missing.
        """

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Continue a prompt."""


class TextModel:
    """A model with text input: the BLS, or the ensemble.

    Args:
        server: that has the model.
        model: its Triton name.
        draft_tokens: per round; None applies the server's default.
    """

    def __init__(self, server: Server, model: str, draft_tokens: int | None) -> None:
        self._server = server
        self._model = model
        self._draft_tokens = draft_tokens

    async def check(self) -> None:
        """Check the text inputs, and the input for the draft length if one is sent."""
        required = ["text_input", "max_tokens"]
        if self._draft_tokens is not None:
            required.append("num_draft_tokens")
        await require_inputs(self._server, self._model, required)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Send one request; the responses of a streaming BLS show its rounds."""
        config = await self._server.config(self._model)
        inputs = await self._server.inputs(self._model)
        # Every response of a streaming BLS is one round. A streaming ensemble sends a response per
        # token, and loses characters that consist of two tokens.
        stream = config.model_transaction_policy.decoupled and self._model != ENSEMBLE
        request = Request(
            prompt,
            self._model,
            max_tokens=max_tokens,
            draft_tokens=self._draft_tokens,
            stream=stream,
        )
        declared = {tensor.name for tensor in config.output}
        outputs = [name for name in ALWAYS if name in declared]
        answer = PathAnswer("", rounds=0)
        server = self._server
        try:
            # One stream per request: an ensemble of decoupled models supports nothing else.
            async with (
                asyncio.timeout(server.timeout),
                Calls(server) as calls,
                aclosing(calls.parts(self._model, request.tensors(inputs), outputs)) as parts,
            ):
                async for part in parts:
                    answer = _extended(answer, part)
        except TimeoutError:
            raise UnreachableError(
                f"no complete answer of {self._model} at {server.url} within "
                f"{server.timeout:g} s; request fewer tokens or increase the timeout"
            ) from None
        return answer if stream and answer.counts else replace(answer, rounds=None)


class EngineModel:
    """The target's engine alone, in one call, with the server's tokenizer models."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def check(self) -> None:
        """Check the engine and the tokenizer models."""
        await require_inputs(self._server, PREPROCESSING, ["QUERY"])
        await require_inputs(self._server, TARGET, _ENGINE_INPUTS)
        await require_inputs(self._server, POSTPROCESSING, ["TOKENS_BATCH"])

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Generate all tokens with one engine call."""
        inputs = await self._server.inputs(TARGET)
        async with Calls(self._server) as calls:
            prepared = await tokenization.prepare(calls, prompt, Sampling())
            common = tokenization.engine_inputs(Sampling(), prepared, inputs, TARGET)
            engine = Engine(calls, TARGET, self._server.url, inputs, common)
            ids, _ = await engine.new(prepared.ids, max_tokens, {}, minimum=0, logits=False)
            return PathAnswer(await tokenization.text(calls, ids), tuple(ids))


class ClientLoop:
    """The client's draft/target loop.

    Args:
        server: that has the target.
        target: the connection to it.
        draft: connection to the draft's own server; None if the target's server has the draft.
        draft_tokens: per round.
    """

    def __init__(
        self, server: Server, target: Connection, draft: Connection | None, draft_tokens: int
    ) -> None:
        self._server = server
        self._target = target
        self._draft = draft
        self._draft_tokens = draft_tokens

    async def check(self) -> None:
        """Check both engines and the target's tokenizer models."""
        await EngineModel(self._server).check()
        if self._draft is None:
            await require_inputs(self._server, DRAFT, _ENGINE_INPUTS)
            return
        async with Server(self._draft) as draft:
            await require_inputs(draft, TARGET, _ENGINE_INPUTS)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Draft and verify until the answer ends."""
        options = Options(max_tokens=max_tokens, draft_tokens=self._draft_tokens)
        [result] = await speculate([prompt], options, self._target, self._draft, concurrency=1)
        if result.error is not None:
            raise result.error
        rounds = sum(step.round.drafted > 0 for step in result.steps)
        counts = Counts(result.drafted, result.accepted)
        return PathAnswer(result.text, result.tokens, counts, rounds)


async def require_inputs(server: Server, model: str, required: Sequence[str]) -> None:
    """Raise BadRequestError if a server lacks a model, or a model lacks an input."""
    try:
        inputs = await server.inputs(model)
    except RefusedError as error:
        raise BadRequestError(f"{error}; verification needs model {model}") from error
    for name in required:
        if name not in inputs:
            raise BadRequestError(
                f"model {model} at {server.url} has no input {name}, which verification needs; "
                "serve it with the model layout of TensorRT-LLM, as the operator does"
            )


def _extended(answer: PathAnswer, response: Tensors) -> PathAnswer:
    """The answer with one more response, whose counts are totals so far."""
    part = chunk(response, frozenset())
    if part is None:
        return answer
    drafted = answer.counts.drafted if answer.counts else 0
    counts = part.counts or answer.counts
    is_round = counts is not None and counts.drafted > drafted
    return PathAnswer(answer.text + part.text, None, counts, (answer.rounds or 0) + is_round)
