"""Send one request to an engine model: token ids in, token ids out.

`specdec infer` and the verification Job use it. It needs no tokenizer, and can cancel a request
after a given time.
"""

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
from specdec.client.tensors import array
from specdec.servers.sampling import Sampling, input_name
from specdec.triton.model_names import TARGET

# Window, n-gram size and verification set of lookahead decoding (Fu et al., 2024).
_LOOKAHEAD = (
    "lookahead_window_size",
    "lookahead_ngram_size",
    "lookahead_verification_set_size",
)
_COUNTS = ("total_draft_tokens", "total_accepted_draft_tokens")


@dataclass(frozen=True, kw_only=True)
class Inference(Sampling):
    """A request to an engine.

    Attributes:
        ids: the prompt's token ids.
        draft: draft tokens; the engine then runs one verification step, and returns the accepted
            tokens and one more.
        lookahead: window, n-gram size and verification set, each at most that of the engine;
            empty means the engine's.
        max_tokens: maximum of new tokens.
        stream: several responses instead of one.
        model: the engine's Triton name.

    Raises:
        BadRequestError: an invalid value, or stop, bad or bias words, which need a tokenizer.
    """

    ids: tuple[int, ...]
    draft: tuple[int, ...] = ()
    lookahead: tuple[int, ...] = ()
    max_tokens: int = 16
    stream: bool = False
    model: str = TARGET

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ids:
            raise BadRequestError("there are no input tokens; give at least one id")
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        for token in (*self.ids, *self.draft):
            if not 0 <= token < 2**31:
                raise BadRequestError(
                    f"token id {token} is invalid; give ids between 0 and 2**31-1"
                )
        if self.lookahead and (len(self.lookahead) != 3 or min(self.lookahead) < 0):
            sizes = ",".join(map(str, self.lookahead))
            raise BadRequestError(
                f"lookahead is {sizes}; give three sizes: window, n-gram and verification set"
            )
        if self.stop_words or self.bad_words or self.bias_words:
            raise BadRequestError(
                "an engine takes no stop or bad words; use a model with text input"
            )

    def tensors(self, declared: frozenset[str]) -> dict[str, NDArray[Any]]:
        """The request as arrays [1, n], by the input names that the engine declares.

        Raises:
            BadRequestError: the engine declares no input for a value.
        """
        inputs = {
            input_name(field, declared, self.model): array(value.batched())
            for field, value in self.numbers()
        }
        if self.draft:
            inputs["draft_input_ids"] = np.array([self.draft], np.int32)
        if self.lookahead and not declared.issuperset(_LOOKAHEAD):
            raise BadRequestError(
                f"model {self.model} takes no lookahead sizes; send the request without them"
            )
        for name, size in zip(_LOOKAHEAD, self.lookahead, strict=False):
            inputs[name] = np.array([[size]], np.int32)
        if self.stream:
            inputs["streaming"] = np.array([[True]])
        inputs["exclude_input_in_output"] = np.array([[False]])
        return {**inputs, **tokenization.prefix(self.ids, self.max_tokens)}


@dataclass
class Output:
    """The answer of an engine.

    Attributes:
        tokens: new ids.
        responses: number of responses.
        cancelled: the request was cancelled after `cancel_after`.
        drafted, accepted: None if the engine does not report them.
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
    on_result: Callable[[list[int]], None] | None = None,
) -> Output:
    """Send a request to an engine, and cancel it after `cancel_after` seconds if given.

    Args:
        connection: to the server.
        inference: the request.
        cancel_after: seconds after which the request is cancelled; None waits for the end.
        on_result: called with the new ids of every response.

    Raises:
        BadRequestError: the engine lacks an input, or does not stream.
        RefusedError: the server returned an error.
        UnreachableError: the connection failed, or the answer was not complete in time.
    """
    output = Output([])
    async with Server(connection) as server, Calls(server) as calls:
        config = await server.config(inference.model)
        decoupled = config.model_transaction_policy.decoupled
        name = f"{inference.model} at {connection.url}"
        if inference.stream and not decoupled:
            raise BadRequestError(
                f"model {name} does not stream; send the request without streaming"
            )
        tensors = inference.tensors(await server.inputs(inference.model))
        names = {tensor.name for tensor in config.output}
        requested = ("output_ids", "sequence_length", *(n for n in _COUNTS if n in names))

        def take(answer: Any) -> None:
            # A streamed response contains its new tokens only, not the prompt.
            skip = 0 if inference.stream else len(inference.ids)
            new = tokenization.new_tokens(answer, skip, name)
            _count(output, answer)
            output.tokens += new
            output.responses += 1
            if on_result is not None:
                on_result(new)

        limit = min(connection.timeout, cancel_after or connection.timeout)
        try:
            async with asyncio.timeout(limit):
                if not decoupled:
                    take(await calls.call(inference.model, tensors, requested))
                    return output
                async with aclosing(calls.parts(inference.model, tensors, requested)) as parts:
                    async for part in parts:
                        take(part)
        except TimeoutError:
            output.cancelled = True
        if output.cancelled and limit == connection.timeout:
            raise UnreachableError(
                f"no complete answer from {connection.url} within {limit:g} s; "
                "request fewer tokens or increase the timeout"
            )
    return output


def agreement(expected: Sequence[object], got: Sequence[object]) -> tuple[float, int | None]:
    """Compare two sequences.

    Returns:
        The share of equal positions in the longer sequence, and the index of the first difference.
    """
    length = max(len(expected), len(got))
    same = [left == right for left, right in zip(expected, got, strict=False)]
    first = next((index for index, equal in enumerate(same) if not equal), len(same))
    return (sum(same) / length if length else 1.0), None if first == length else first


def _count(output: Output, answer: Any) -> None:
    for field, name in (("drafted", _COUNTS[0]), ("accepted", _COUNTS[1])):
        if name in answer and answer[name].size:
            setattr(output, field, int(answer[name].reshape(-1)[0]))
