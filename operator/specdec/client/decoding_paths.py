"""Three ways to an answer that `verification` sets against each other, all greedy."""

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
from specdec.client.model_names import DRAFT, ENSEMBLE, POSTPROCESSING, PREPROCESSING, TARGET
from specdec.client.request import Request
from specdec.client.sampling import Sampling
from specdec.client.speculate import Options, speculate

_ENGINE_INPUTS = ("input_ids", "input_lengths", "request_output_len")


@dataclass(frozen=True)
class PathAnswer:
    """One answer.

    Attributes:
        text: what was generated.
        ids: its token ids, None where the way to it tells text alone.
        counts: draft tokens offered and accepted, None where nobody tells.
        rounds: those with a draft, None where nobody tells.
    """

    text: str
    ids: tuple[int, ...] | None = None
    counts: Counts | None = None
    rounds: int | None = None


class DecodingPath(Protocol):
    """A way to an answer. Both methods raise the errors of `wire.Server`."""

    async def check(self) -> None:
        """Find out whether it can be gone at all.

        Raises:
            BadRequestError: a model or an input that it needs is not there.
        """

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Continue a prompt."""


class TextModel:
    """A model that takes text: the BLS, or the ensemble.

    Args:
        server: where it is.
        model: its Triton name.
        draft_tokens: sent along; None leaves the length to the server.
    """

    def __init__(self, server: Server, model: str, draft_tokens: int | None) -> None:
        self._server = server
        self._model = model
        self._draft_tokens = draft_tokens

    async def check(self) -> None:
        """The model takes text, and a draft length where one is to be sent."""
        wanted = ["text_input", "max_tokens"]
        if self._draft_tokens is not None:
            wanted.append("num_draft_tokens")
        await _declared(self._server, self._model, wanted)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Ask once; a BLS that streams tells its rounds by its responses."""
        config = await self._server.config(self._model)
        inputs = await self._server.inputs(self._model)
        # Every response of a streaming BLS is one round. The ensemble's would be tokens, whose
        # texts lose characters that lie in two of them.
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
        said = PathAnswer("", rounds=0)
        server = self._server
        try:
            # A stream for each request: an ensemble of decoupled models takes nothing else.
            async with (
                asyncio.timeout(server.timeout),
                Calls(server) as calls,
                aclosing(calls.parts(self._model, request.tensors(inputs), outputs)) as parts,
            ):
                async for part in parts:
                    said = _longer(said, part)
        except TimeoutError:
            raise UnreachableError(
                f"no whole answer of {self._model} at {server.url} within {server.timeout:g} s; "
                "ask for fewer tokens or give more time"
            ) from None
        return said if stream and said.counts else replace(said, rounds=None)


class EngineModel:
    """The engine of the target alone, in one call; the server turns text into tokens and back."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def check(self) -> None:
        """The engine and the models around it are there."""
        await _declared(self._server, PREPROCESSING, ["QUERY"])
        await _declared(self._server, TARGET, _ENGINE_INPUTS)
        await _declared(self._server, POSTPROCESSING, ["TOKENS_BATCH"])

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Ask once."""
        inputs = await self._server.inputs(TARGET)
        async with Calls(self._server) as calls:
            prepared = await tokenization.prepare(calls, prompt, Sampling())
            common = tokenization.engine_inputs(Sampling(), prepared, inputs, TARGET)
            engine = Engine(calls, TARGET, self._server.url, inputs, common)
            ids, _ = await engine.new(prepared.ids, max_tokens, {}, minimum=0, logits=False)
            return PathAnswer(await tokenization.text(calls, ids), tuple(ids))


class ClientLoop:
    """The draft/target loop of this client.

    Args:
        server: the target's.
        target: how to reach it.
        draft: server of the draft; the target's without one.
        draft_tokens: a round.
    """

    def __init__(
        self, server: Server, target: Connection, draft: Connection | None, draft_tokens: int
    ) -> None:
        self._server = server
        self._target = target
        self._draft = draft
        self._draft_tokens = draft_tokens

    async def check(self) -> None:
        """Both engines and the models around the target are there."""
        await EngineModel(self._server).check()
        if self._draft is None:
            await _declared(self._server, DRAFT, _ENGINE_INPUTS)
            return
        async with Server(self._draft) as draft:
            await _declared(draft, TARGET, _ENGINE_INPUTS)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Draft and verify until the answer ends."""
        options = Options(max_tokens=max_tokens, draft_tokens=self._draft_tokens)
        [result] = await speculate([prompt], options, self._target, self._draft, concurrency=1)
        if result.error is not None:
            raise result.error
        rounds = sum(step.round.drafted > 0 for step in result.steps)
        counts = Counts(result.drafted, result.accepted)
        return PathAnswer(result.text, result.tokens, counts, rounds)


async def _declared(server: Server, model: str, wanted: Sequence[str]) -> None:
    try:
        inputs = await server.inputs(model)
    except RefusedError as error:
        raise BadRequestError(f"{error}; verification needs model {model} there") from error
    for name in wanted:
        if name not in inputs:
            raise BadRequestError(
                f"model {model} at {server.url} has no input {name}, which verification needs; "
                "serve it in the layout of the guides, as the operator does"
            )


def _longer(said: PathAnswer, response: Tensors) -> PathAnswer:
    """What was said, with one more response; its counts are those of the answer so far."""
    part = chunk(response, frozenset())
    if part is None:
        return said
    drafted = said.counts.drafted if said.counts else 0
    counts = part.counts or said.counts
    more = counts is not None and counts.drafted > drafted
    return PathAnswer(said.text + part.text, None, counts, (said.rounds or 0) + more)
