"""Verify that speculation gives the same answers as the target alone, for a data set.

`specdec verify` and the verification Job call `verify`. It reports equal and different answers,
and the counts of draft tokens; it does not judge them.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.decoding_paths import (
    ClientLoop,
    DecodingPath,
    EngineModel,
    JsonModel,
    TextModel,
)
from specdec.client.divergence import Divergence
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.client.grpc_calls import Server
from specdec.client.metrics import SpeculationTotals
from specdec.client.metrics import read as read_metrics
from specdec.client.same_service import refuse_same
from specdec.client.verification_result import Comparison, Failure, Kind, Verification, summary
from specdec.servers.encoding import Requests
from specdec.servers.openai_api import OPENAI
from specdec.triton.model_names import BLS, ENSEMBLE

__all__ = ["Comparison", "Divergence", "Failure", "Options", "Verification", "verify"]

Against = Literal["ensemble", "bls", "target"]
_LOOP_DRAFT_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a verification.

    Attributes:
        max_tokens: maximum of new tokens for prompts without their own limit.
        draft_tokens: per round; None is the default of the BLS, or 4 for the client's loop.
        against: the baseline: `ensemble`, the BLS without drafts (`bls`), or the target's engine
            (`target`). None selects the engine for the client's loop, because both return token
            ids, and otherwise the ensemble.
        client_loop: verify the client's draft/target loop instead of the BLS.
        model: name of the model: the BLS, a model with the same inputs, the LLM API, or a model of
            an OpenAI endpoint (empty selects the only one).
        baseline_model: a model of the baseline's server; it replaces `against`.
        requests: how the model is asked; None finds that, see `generate.Client`.

    Raises:
        BadRequestError: a value no server could take.
    """

    max_tokens: int = 64
    draft_tokens: int | None = None
    against: Against | None = None
    client_loop: bool = False
    model: str = BLS
    baseline_model: str | None = None
    requests: Requests | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        if self.draft_tokens is not None and self.draft_tokens < 0:
            raise BadRequestError(
                f"draft tokens is {self.draft_tokens}; set it to 0 (off) or more, or leave it out"
            )
        if self.client_loop and self.model != type(self).model:
            raise BadRequestError(
                f"model {self.model} has no part in the client's loop; leave out one of them"
            )


async def verify(
    entries: Sequence[Entry],
    options: Options,
    server: Connection,
    *,
    baseline: Connection | None = None,
    draft: Connection | None = None,
    metrics: str | None = None,
    concurrency: int = 8,
    on_result: Callable[[Comparison], None] | None = None,
) -> Verification:
    """Run every prompt with speculation and with the target alone, and compare the answers.

    All requests decode greedily, so both answers must be equal token by token.

    Args:
        entries: the data set.
        options: for all prompts.
        server: endpoint of the verified model: Triton's gRPC endpoint, or one with the OpenAI API.
        baseline: endpoint of the target alone, of either kind; by default the same server.
        draft: gRPC endpoint of the draft for the client's loop; by default the same server.
        metrics: `host:port` of the verified server's metrics. Its counters replace the counts that
            the answers do not report. The counters include the requests of other clients.
        concurrency: number of prompts in flight.
        on_result: called with the outcome of each prompt.

    Raises:
        BadRequestError: no prompts, concurrency below 1, or a missing model or input.
        UnreachableError: the first connection failed.
    """
    if not entries or concurrency < 1:
        raise BadRequestError("there is nothing to do; give a prompt and concurrency 1 or more")
    if draft is not None and not options.client_loop:
        raise BadRequestError(
            "a draft server requires the client's loop; select the loop or leave it out"
        )
    async with AsyncExitStack() as stack:
        verified = await stack.enter_async_context(Server(server))
        baseline_server = await stack.enter_async_context(Server(baseline or server))
        verified_path = decoding_path(options, verified, server, draft)
        baseline_path = _baseline(options, baseline_server, server, baseline)
        await _check(options, server, verified_path, baseline, baseline_path)
        run = _Run(verified_path, baseline_path)
        before = await _counted(metrics)
        await run.all(entries, options.max_tokens, concurrency, on_result or (lambda _: None))
        outcomes = [run.outcomes[index] for index in range(len(entries))]
        return await summary(
            entries,
            outcomes,
            None if baseline is not None and baseline.path else baseline_server,
            await _counted_since(before, metrics),
        )


def decoding_path(
    options: Options, server: Server, target: Connection, draft: Connection | None = None
) -> DecodingPath:
    """The decoding path that is verified.

    Args:
        options: of the verification.
        server: the client of the server of the model.
        target: the connection to it.
        draft: the connection to the draft's own server, if it has one.
    """
    if options.client_loop:
        length = _LOOP_DRAFT_TOKENS if options.draft_tokens is None else options.draft_tokens
        return ClientLoop(server, target, draft, length)
    requests = options.requests
    if target.path:
        return JsonModel(target, options.model, options.draft_tokens, requests or OPENAI)
    return TextModel(server, options.model, options.draft_tokens, requests)


def _baseline(
    options: Options, server: Server, target: Connection, baseline: Connection | None
) -> DecodingPath:
    if baseline is not None and baseline.path:
        return JsonModel(baseline, options.baseline_model or "")
    if baseline is not None and options.baseline_model:
        return TextModel(server, options.baseline_model)
    if baseline is None and target.path:
        return JsonModel(target, options.model, 0, options.requests or OPENAI)
    paths: dict[Against, DecodingPath] = {
        "ensemble": TextModel(server, ENSEMBLE),
        "bls": TextModel(server, options.model, 0, options.requests),
        "target": EngineModel(server),
    }
    return paths[options.against or ("target" if options.client_loop else "ensemble")]


async def _check(
    options: Options,
    server: Connection,
    verified: DecodingPath,
    baseline: Connection | None,
    baseline_path: DecodingPath,
) -> None:
    """Raise BadRequestError unless both models have their inputs, and are not one service."""
    await verified.check()
    if baseline is None and not verified.has_baseline:
        raise BadRequestError(
            "this model has no baseline in its own service; give --baseline-url of a service "
            "without speculation, and --baseline-model if it is not the ensemble"
        )
    await baseline_path.check()
    own = baseline is not None and (baseline.path or options.baseline_model)
    if baseline is not None and own and not options.client_loop:
        refuse_same(server, verified.model, baseline, baseline_path.model)


class _Run:
    """All prompts of one verification."""

    def __init__(self, verified: DecodingPath, baseline_path: DecodingPath) -> None:
        self.outcomes: dict[int, Comparison] = {}
        self._verified = verified
        self._baseline = baseline_path
        self._unreachable: UnreachableError | None = None

    async def all(
        self,
        entries: Sequence[Entry],
        max_tokens: int,
        concurrency: int,
        on_result: Callable[[Comparison], None],
    ) -> None:
        """Fill in `outcomes`, with `concurrency` prompts in flight."""
        pending = iter(enumerate(entries))

        async def work() -> None:
            for index, entry in pending:
                limit = entry.max_tokens or max_tokens
                self.outcomes[index] = await self._compare(index, entry.prompt, limit)
                on_result(self.outcomes[index])

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(entries))):
                group.create_task(work())

    async def _compare(self, index: int, prompt: str, max_tokens: int) -> Comparison:
        try:
            # After one connection error, the other prompts fail without another timeout.
            if self._unreachable is not None:
                raise self._unreachable
            got = await self._verified.answer(prompt, max_tokens)
            return Comparison(index, await self._baseline.answer(prompt, max_tokens), got)
        except ClientError as error:
            if isinstance(error, UnreachableError):
                self._unreachable = error
            return Comparison(index, failure=Failure(index, str(error), _kind(error)))


def _kind(error: ClientError) -> Kind:
    if isinstance(error, UnreachableError):
        return "unreachable"
    return "refused" if isinstance(error, RefusedError) else "bad_request"


async def _counted(metrics: str | None) -> SpeculationTotals | None:
    return None if metrics is None else await asyncio.to_thread(read_metrics, metrics)


async def _counted_since(
    before: SpeculationTotals | None, metrics: str | None
) -> SpeculationTotals | None:
    try:
        after = await _counted(metrics)
    except UnreachableError:
        # The comparison is valid without counters, so a server that stopped is no error here.
        return None
    return None if before is None or after is None else after - before
