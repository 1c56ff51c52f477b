"""Count the draft tokens of a server that runs TensorRT-LLM's LLM API, for the verification Job.

Its model takes and gives text, and counts draft tokens on request. No request turns drafts off, so
there is no answer of the target alone to compare with.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.api.reasons import VerificationReason
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import RefusedError, UnreachableError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.model_names import TARGET
from specdec.client.sampling import strings
from specdec.jobs.result import JobError

_DRAFTED, _ACCEPTED = "total_draft_tokens", "total_accepted_draft_tokens"
_OUTPUTS = ("text_output", _DRAFTED, _ACCEPTED)
_MESSAGE_CHARACTERS = 300


async def counted(
    connection: Connection, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    answered = drafted = accepted = 0
    failures: list[str] = []
    async with Server(connection) as server:
        for entry in entries:
            try:
                outputs = await _answer(server, entry.prompt, entry.max_tokens or max_tokens)
            except RefusedError as error:
                failures.append(str(error))
                continue
            answered += 1
            drafted += _count(outputs, _DRAFTED)
            accepted += _count(outputs, _ACCEPTED)
    if not answered:
        raise JobError(
            VerificationReason.VERIFICATION_FAILED,
            f"no prompt has an answer: {failures[0]}",
            permanent=False,
        )
    status: dict[str, Any] = {
        "prompts": answered,
        "failed": len(failures),
        "active": drafted > 0,
        "draftedTokens": drafted,
        "acceptedTokens": accepted,
    }
    if drafted:
        status["acceptancePercent"] = round(100 * accepted / drafted)
    if failures:
        status["failure"] = failures[0][:_MESSAGE_CHARACTERS]
    return status


async def _answer(server: Server, prompt: str, max_tokens: int) -> Mapping[str, NDArray[Any]]:
    """The last response to a greedy request."""
    tensors = {
        "text_input": strings((prompt,)),
        "sampling_param_max_tokens": np.array([max_tokens], np.int32),
        "sampling_param_top_k": np.array([1], np.int32),
        "sampling_param_return_perf_metrics": np.array([True]),
    }
    last: Mapping[str, NDArray[Any]] = {}
    try:
        async with (
            asyncio.timeout(server.timeout),
            Calls(server) as calls,
            aclosing(calls.parts(TARGET, tensors, _OUTPUTS)) as parts,
        ):
            async for part in parts:
                last = part or last
    except TimeoutError:
        raise UnreachableError(
            f"no complete answer of {TARGET} at {server.url} within {server.timeout:g} s; request "
            "fewer tokens or increase the timeout"
        ) from None
    return last


def _count(outputs: Mapping[str, NDArray[Any]], name: str) -> int:
    values = outputs.get(name)
    return int(values.reshape(-1)[0]) if values is not None and values.size else 0
