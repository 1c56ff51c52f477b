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
from specdec.client.connection import Connection
from specdec.client.engine import Engine
from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.generate import Client
from specdec.client.grpc_calls import Calls, Server
from specdec.client.kinds import text_model
from specdec.client.speculate import Options, speculate
from specdec.servers.chunk import Chunk, Counts
from specdec.servers.encoding import Declaration, Requests
from specdec.servers.openai_api import OPENAI
from specdec.servers.request import Request
from specdec.servers.sampling import Sampling
from specdec.triton.model_names import DRAFT, POSTPROCESSING, PREPROCESSING, TARGET

_ENGINE_INPUTS = ("input_ids", "input_lengths", "request_output_len")


@dataclass(frozen=True)
class PathAnswer:
    """One answer.

    Attributes:
        text: the generated text.
        ids: its token ids; None if the path returns only text.
        counts: drafted and accepted tokens; None if not reported.
        rounds: number of rounds with a draft; None if not reported.
        reason: why it ended, `stop` or `length`; None if not reported.
    """

    text: str
    ids: tuple[int, ...] | None = None
    counts: Counts | None = None
    rounds: int | None = None
    reason: str | None = None


class DecodingPath(Protocol):
    """One way to generate an answer. Both methods raise the errors of `grpc_calls.Server`.

    Attributes:
        model: the name of the model that answers.
    """

    model: str

    @property
    def has_baseline(self) -> bool:
        """Whether the same service also gives the answers of the target alone."""

    async def check(self) -> None:
        """Check that the server has the models and inputs of this path.

        Raises:
            BadRequestError: a model or an input is missing.
        """

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Continue a prompt."""


class TextModel:
    """A model of Triton with text input.

    Args:
        server: that has the model.
        model: its Triton name.
        draft_tokens: per round; None applies the server's default.
        requests: how it is asked; None finds that by the inputs of the model.
    """

    def __init__(
        self,
        server: Server,
        model: str,
        draft_tokens: int | None = None,
        requests: Requests | None = None,
    ) -> None:
        self.model = model
        self._server = server
        self._draft_tokens = draft_tokens
        self._requests = requests

    @property
    def has_baseline(self) -> bool:
        """Whether requests can turn drafts off; known after `check`."""
        return self._requests is not None and self._requests.drafts_by_request

    async def check(self) -> None:
        """Check that the model takes text, and a draft length if one is sent."""
        try:
            declared = await self._server.declaration(self.model)
        except RefusedError as error:
            raise BadRequestError(f"{error}; verification needs model {self.model}") from error
        requests = self._requests or text_model(declared, self._server.url)
        self._requests = requests
        requests.encode(self._request("-", 1, requests, declared), declared)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Send one request; the responses of a streaming BLS show its rounds."""
        server = self._server
        declared = await server.declaration(self.model)
        requests = self._requests or text_model(declared, server.url)
        request = self._request(prompt, max_tokens, requests, declared)
        reader = requests.reader(request)
        answer = PathAnswer("", rounds=0)
        try:
            # One stream per request: an ensemble of decoupled models supports nothing else.
            async with (
                asyncio.timeout(server.timeout),
                Calls(server) as calls,
                aclosing(calls.responses(requests.encode(request, declared))) as responses,
            ):
                async for response in responses:
                    answer = _extended(answer, reader.read(response))
        except TimeoutError:
            raise UnreachableError(
                f"no complete answer of {self.model} at {server.url} within "
                f"{server.timeout:g} s; request fewer tokens or increase the timeout"
            ) from None
        answer = _extended(answer, reader.end())
        return answer if request.stream and answer.counts else replace(answer, rounds=None)

    def _request(
        self, prompt: str, max_tokens: int, requests: Requests, declared: Declaration
    ) -> Request:
        return Request(
            prompt,
            self.model,
            max_tokens=max_tokens,
            draft_tokens=self._draft_tokens,
            # Other streams show no rounds, and that of an ensemble loses characters that consist
            # of two tokens.
            stream=requests.streams_rounds(declared),
            **requests.greedy,
        )


class JsonModel:
    """A model of a server with a JSON API. See `DecodingPath`.

    Args:
        connection: to the service.
        model: its name; empty selects the only one.
        draft_tokens: per round; None applies the server's default.
        requests: how it is asked.
    """

    def __init__(
        self,
        connection: Connection,
        model: str,
        draft_tokens: int | None = None,
        requests: Requests = OPENAI,
    ) -> None:
        self.model = model
        self._connection = connection
        self._draft_tokens = draft_tokens
        self._requests = requests

    @property
    def has_baseline(self) -> bool:
        """Whether requests can turn drafts off."""
        return self._requests.drafts_by_request

    async def check(self) -> None:
        """Check that the service has the model, and learn its name."""

        def resolved() -> str:
            with Client(self._connection, requests=self._requests) as client:
                return client.model(self.model).name

        self.model = await asyncio.to_thread(resolved)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Send one request without streaming."""
        request = Request(
            prompt,
            self.model,
            max_tokens=max_tokens,
            draft_tokens=self._draft_tokens,
            stream=False,
            **self._requests.greedy,
        )

        def ask() -> PathAnswer:
            with Client(self._connection, requests=self._requests) as client:
                answer = client.ask(request)
            return PathAnswer(answer.text, counts=answer.counts)

        return await asyncio.to_thread(ask)


class EngineModel:
    """The target's engine alone, in one call, with the server's tokenizer models."""

    model = TARGET
    has_baseline = True

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

    model = TARGET
    has_baseline = True

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


async def token_count(path: DecodingPath, prompt: str, max_tokens: int) -> int:
    """How many tokens an answer has, with its end token, from the reasons of its ends.

    This takes one request if the limit ends the answer, else up to eight for 128 tokens.

    Raises:
        RefusedError: the server reports no reason.
    """
    least, most = 1, max_tokens
    middle = most
    while True:
        reason = (await path.answer(prompt, middle)).reason
        if reason is None:
            raise RefusedError("the server reports no reason for the end of an answer")
        if reason == "length":
            least = min(middle + 1, max_tokens)
        else:
            most = middle
        if least >= most:
            return most
        middle = (least + most) // 2


def _extended(answer: PathAnswer, part: Chunk | None) -> PathAnswer:
    """The answer with one more chunk, whose counts are totals so far."""
    if part is None:
        return answer
    drafted = answer.counts.drafted if answer.counts else 0
    counts = part.counts or answer.counts
    is_round = counts is not None and counts.drafted > drafted
    rounds = (answer.rounds or 0) + is_round
    return PathAnswer(answer.text + part.text, None, counts, rounds, part.reason or answer.reason)
