"""One call of an engine model alone: token ids in, token ids out."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from specdec.client import tokenization
from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError, UnreachableError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.sampling import Sampling, spelled

_COUNTS = ("total_draft_tokens", "total_accepted_draft_tokens")


@dataclass(frozen=True, kw_only=True)
class Inference(Sampling):
    """What is asked of an engine.

    Attributes:
        ids: the prompt's token ids.
        draft: ids to verify; the engine then answers for one round: those it accepts and one more.
        max_tokens: new tokens at most.
        stream: several responses instead of one.
        model: the engine's Triton name.

    Raises:
        BadRequestError: a value no engine could take, or words, which need a tokenizer.
    """

    ids: tuple[int, ...]
    draft: tuple[int, ...] = ()
    max_tokens: int = 16
    stream: bool = False
    model: str = "tensorrt_llm"

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ids:
            raise BadRequestError("there are no input tokens; give at least one id")
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        for token in (*self.ids, *self.draft):
            if not 0 <= token < 2**31:
                raise BadRequestError(f"token id {token} is none; give ids between 0 and 2**31-1")
        if self.stop_words or self.bad_words or self.bias_words:
            raise BadRequestError("an engine takes no words; ask a model that takes text")

    def tensors(self, declared: frozenset[str]) -> dict[str, NDArray[Any]]:
        """The request as arrays [1, n], by the input names the engine declares."""
        given = {
            spelled(field, declared, self.model): array.reshape(1, -1)
            for field, array in self.numbers()
        }
        if self.draft:
            given["draft_input_ids"] = np.array([self.draft], np.int32)
        if self.stream:
            given["streaming"] = np.array([[True]])
        given["exclude_input_in_output"] = np.array([[False]])
        return {**given, **tokenization.prefix(self.ids, self.max_tokens)}


@dataclass
class Output:
    """What came back.

    Attributes:
        tokens: new ids.
        responses: how many there were.
        cancelled: the answer was ended by the caller's time.
        drafted, accepted: None where the engine does not tell.
    """

    tokens: list[int]
    responses: int = 0
    cancelled: bool = False
    drafted: int | None = None
    accepted: int | None = None


async def infer(
    connection: Connection,
    inference: Inference,
    *,
    cancel_after: float | None = None,
    tell: Callable[[list[int]], None] | None = None,
) -> Output:
    """Ask an engine; with `cancel_after` go away so many seconds after the request was sent.

    Args:
        connection: the server.
        inference: what is asked.
        cancel_after: seconds, None waits for the end.
        tell: called with the new ids of every response.

    Raises:
        BadRequestError: the engine lacks an input, or does not stream.
        RefusedError: the server's own words.
        UnreachableError: nobody answers, or not in time.
    """
    output = Output([])
    async with Server(connection) as server, Calls(server) as calls:
        config = await server.config(inference.model)
        decoupled = config.model_transaction_policy.decoupled
        if inference.stream and not decoupled:
            raise BadRequestError(
                f"model {inference.model} at {connection.url} does not stream; ask without"
            )
        tensors = inference.tensors(await server.inputs(inference.model))
        names = {tensor.name for tensor in config.output}
        wanted = ("output_ids", "sequence_length", *(n for n in _COUNTS if n in names))

        def take(answer: Any) -> None:
            # A streamed response has its new tokens alone.
            skip = 0 if inference.stream else len(inference.ids)
            new = tokenization.new(answer, skip, f"{inference.model} at {connection.url}")
            _count(output, answer)
            output.tokens += new
            output.responses += 1
            if tell is not None:
                tell(new)

        limit = min(connection.timeout, cancel_after or connection.timeout)
        try:
            async with asyncio.timeout(limit):
                if not decoupled:
                    take(await calls.call(inference.model, tensors, wanted))
                    return output
                async with aclosing(calls.parts(inference.model, tensors, wanted)) as parts:
                    async for part in parts:
                        take(part)
        except TimeoutError:
            output.cancelled = True
        if output.cancelled and limit == connection.timeout:
            raise UnreachableError(
                f"no whole answer from {connection.url} within {limit:g} s; "
                "ask for fewer tokens or give more time"
            )
    return output


def agreement(expected: Sequence[object], got: Sequence[object]) -> tuple[float, int | None]:
    """Share of places that hold the same id, of the longer one's; and the first that differs."""
    length = max(len(expected), len(got))
    same = [left == right for left, right in zip(expected, got, strict=False)]
    first = next((place for place, equal in enumerate(same) if not equal), len(same))
    return (sum(same) / length if length else 1.0), None if first == length else first


def _count(output: Output, answer: Any) -> None:
    for field, name in (("drafted", _COUNTS[0]), ("accepted", _COUNTS[1])):
        if name in answer and answer[name].size:
            setattr(output, field, int(answer[name].reshape(-1)[0]))
