"""Whether speculation gives the target's own answers: a data set against the target alone."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.decoding_paths import ClientLoop, DecodingPath, EngineModel, TextModel
from specdec.client.divergence import Divergence
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.client.grpc_calls import Server
from specdec.client.metrics import SpeculationTotals
from specdec.client.metrics import read as read_metrics
from specdec.client.model_names import BLS, ENSEMBLE
from specdec.client.verification_result import Comparison, Failure, Kind, Verification, summary

__all__ = ["Comparison", "Divergence", "Failure", "Options", "Verification", "verify"]

Against = Literal["ensemble", "bls", "target"]
_LOOP_DRAFT_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a data set is verified.

    Attributes:
        max_tokens: new tokens at most, for prompts that do not say.
        draft_tokens: a round; None leaves it to the BLS, and is 4 in the client's loop.
        against: the baseline: `ensemble`, the BLS without drafts, or the target's engine alone;
            None is the engine for the client's loop, whose ids it can be compared with, else the
            ensemble.
        client_loop: verify the loop of this client in place of the BLS.
        model: Triton name of the BLS, or of a model that takes text as it does.

    Raises:
        BadRequestError: a value no server could take.
    """

    max_tokens: int = 64
    draft_tokens: int | None = None
    against: Against | None = None
    client_loop: bool = False
    model: str = BLS

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        if self.draft_tokens is not None and self.draft_tokens < 0:
            raise BadRequestError(
                f"draft tokens is {self.draft_tokens}; set it to 0 (off) or more, or leave it out"
            )
        if self.client_loop and self.model != BLS:
            raise BadRequestError(
                f"model {self.model} is no part of the client's loop; leave out one of them"
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
    tell: Callable[[Comparison], None] | None = None,
) -> Verification:
    """Ask every prompt twice, with speculation and of the target alone, and compare.

    Greedy: nothing that samples is sent, so both answers must be equal token by token.

    Args:
        entries: the data set.
        options: for all of it.
        server: gRPC endpoint of what is verified.
        baseline: that of the target alone; the same server without one.
        draft: that of the draft in the client's loop; the same server without one.
        metrics: `host:port` of the verified server's metrics: what it counted meanwhile stands in
            for draft tokens and rounds that its answers do not tell. It counts all its clients.
        concurrency: prompts at a time.
        tell: called with each prompt's outcome when it is there.

    Raises:
        BadRequestError: no prompts, no concurrency, or a model or input that is not served.
        UnreachableError: nobody answers when the first question is asked.
    """
    if not entries or concurrency < 1:
        raise BadRequestError("there is nothing to do; give a prompt and concurrency 1 or more")
    if draft is not None and not options.client_loop:
        raise BadRequestError("a server of the draft is for the client's loop; ask for the loop")
    async with AsyncExitStack() as stack:
        verified = await stack.enter_async_context(Server(server))
        control = await stack.enter_async_context(Server(baseline or server))
        run = _Run(_verified(options, verified, server, draft), _control(options, control))
        await run.check()
        before = await _counted(metrics)
        await run.all(entries, options.max_tokens, concurrency, tell or (lambda _: None))
        outcomes = [run.outcomes[index] for index in range(len(entries))]
        return await summary(entries, outcomes, control, await _counted_since(before, metrics))


def _verified(
    options: Options, server: Server, target: Connection, draft: Connection | None
) -> DecodingPath:
    if not options.client_loop:
        return TextModel(server, options.model, options.draft_tokens)
    length = _LOOP_DRAFT_TOKENS if options.draft_tokens is None else options.draft_tokens
    return ClientLoop(server, target, draft, length)


def _control(options: Options, server: Server) -> DecodingPath:
    against = options.against or ("target" if options.client_loop else "ensemble")
    if against == "target":
        return EngineModel(server)
    if against == "bls":
        return TextModel(server, options.model, 0)
    return TextModel(server, ENSEMBLE, None)


class _Run:
    def __init__(self, verified: DecodingPath, control: DecodingPath) -> None:
        self.outcomes: dict[int, Comparison] = {}
        self._verified = verified
        self._control = control
        self._gone: UnreachableError | None = None

    async def check(self) -> None:
        await self._verified.check()
        await self._control.check()

    async def all(
        self,
        entries: Sequence[Entry],
        max_tokens: int,
        concurrency: int,
        tell: Callable[[Comparison], None],
    ) -> None:
        """Fill in `outcomes`, so many prompts at a time."""
        waiting = iter(enumerate(entries))

        async def work() -> None:
            for index, entry in waiting:
                limit = entry.max_tokens or max_tokens
                self.outcomes[index] = await self._compare(index, entry.prompt, limit)
                tell(self.outcomes[index])

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(entries))):
                group.create_task(work())

    async def _compare(self, index: int, prompt: str, max_tokens: int) -> Comparison:
        try:
            # A server that is gone is not waited for again by every prompt.
            if self._gone is not None:
                raise self._gone
            got = await self._verified.answer(prompt, max_tokens)
            return Comparison(index, await self._control.answer(prompt, max_tokens), got)
        except ClientError as error:
            self._gone = error if isinstance(error, UnreachableError) else self._gone
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
        # What was compared before the server went away is worth more than its counts.
        return None
    return None if before is None or after is None else after - before
