"""Run the draft/target loop in the client, against one server or two, for many prompts at once.

`specdec speculate` and the `ClientLoop` decoding path use `speculate`. An error of one prompt is
part of its result and does not affect the others.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from specdec.client import tokenization
from specdec.client.connection import Connection
from specdec.client.draft_loop import DraftLoop
from specdec.client.engine import Engine
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.client.grpc_calls import Calls, Server, Tensors
from specdec.client.speculate_result import Result, Step
from specdec.client.tokenization import Prepared
from specdec.servers.sampling import Sampling
from specdec.triton.model_names import DRAFT, TARGET

__all__ = ["Options", "Result", "Step", "speculate"]


@dataclass(frozen=True, kw_only=True)
class Options(Sampling):
    """The options for all prompts.

    Attributes:
        max_tokens: maximum of new tokens.
        draft_tokens: maximum per round; 0 runs the target alone.
        use_draft_logits: the target accepts by rejection sampling on the draft's logits.
        draft_logits, accepted_logits: return these logits with every round.
        check_vocabulary: fail if the two servers tokenize a prompt differently.
        target_model, draft_model: Triton names of the engines. The draft's default is
            `tensorrt_llm` on its own server, and `tensorrt_llm_draft` on the target's server.

    Raises:
        BadRequestError: a value no server could take.
    """

    max_tokens: int = 64
    draft_tokens: int = 4
    use_draft_logits: bool = False
    draft_logits: bool = False
    accepted_logits: bool = False
    check_vocabulary: bool = True
    target_model: str = TARGET
    draft_model: str | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        if self.draft_tokens < 0:
            raise BadRequestError(
                f"draft tokens is {self.draft_tokens}; set it to 0 (off) or more"
            )
        if (self.beam_width or 1) > 1:
            raise BadRequestError(
                f"beam width is {self.beam_width}; speculation has one beam: leave it out"
            )


async def speculate(
    prompts: Sequence[str],
    options: Options,
    target: Connection,
    draft: Connection | None = None,
    *,
    concurrency: int = 16,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Generate an answer to every prompt.

    Args:
        prompts: texts.
        options: for all prompts.
        target: server with the target and the tokenizer models.
        draft: the draft's own server; None if the target's server has the draft.
        concurrency: number of prompts in flight.
        on_result: called with each result when it is complete.

    Returns:
        A result per prompt, in order; a failed prompt has an error in its result.

    Raises:
        BadRequestError: no prompts, or concurrency below 1.
    """
    if not prompts or concurrency < 1:
        raise BadRequestError("there is nothing to do; give a prompt and concurrency 1 or more")
    async with Server(target) as target_server, Server(draft or target) as draft_server:
        return await _Run(target_server, draft_server, options, draft is not None).all(
            prompts, concurrency, on_result or (lambda _: None)
        )


class _Run:
    """All prompts of one call of `speculate`."""

    def __init__(self, target: Server, draft: Server, options: Options, two_servers: bool) -> None:
        self._target = target
        self._draft = draft
        self._two_servers = two_servers
        name = options.draft_model or (TARGET if two_servers else DRAFT)
        self._options = replace(options, draft_model=name)
        self._unreachable: UnreachableError | None = None

    async def all(
        self, prompts: Sequence[str], concurrency: int, on_result: Callable[[Result], None]
    ) -> list[Result]:
        """The results in the order of the prompts, with `concurrency` prompts in flight."""
        pending = iter(enumerate(prompts))
        results: dict[int, Result] = {}

        async def work() -> None:
            for index, prompt in pending:
                results[index] = await self._answer(Result(index, prompt))
                on_result(results[index])

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(prompts))):
                group.create_task(work())
        return [results[index] for index in range(len(prompts))]

    async def _answer(self, result: Result) -> Result:
        # After one connection error, the other prompts fail without another connection timeout.
        if self._unreachable is not None:
            return replace(result, error=self._unreachable)
        generation = _Generation(self._target, self._draft, self._options)
        started = time.monotonic()
        error: ClientError | None = None
        text = ""
        try:
            text = await generation.answer(result.prompt, self._two_servers)
        except ClientError as failure:
            error = failure
            if isinstance(failure, UnreachableError):
                self._unreachable = failure
        loop = generation.loop
        return replace(
            result,
            text=text,
            prompt_tokens=len(loop.ids) - len(loop.tokens) if loop else 0,
            tokens=tuple(loop.tokens) if loop else (),
            steps=tuple(generation.steps),
            seconds=time.monotonic() - started,
            error=error,
        )


class _Generation:
    """The draft/target loop for one prompt.

    Attributes:
        loop: the state of the answer; None before the prompt is tokenized.
        steps: the rounds so far.
    """

    def __init__(self, target: Server, draft: Server, options: Options) -> None:
        self.loop: DraftLoop | None = None
        self.steps: list[Step] = []
        self._target = target
        self._draft = draft
        self._options = options
        self._draft_model = options.draft_model or DRAFT

    async def answer(self, prompt: str, two_servers: bool) -> str:
        """Generate the text; after an error, `loop` and `steps` keep the rounds so far."""
        async with Calls(self._target) as target, Calls(self._draft) as draft:
            prepared = await tokenization.prepare(target, prompt, self._options)
            if two_servers and self._options.check_vocabulary:
                by_draft = await tokenization.prepare(draft, prompt, self._options)
                _require_same_tokens(prepared, by_draft, self._target.url, self._draft.url)
            self.loop = loop = DraftLoop(
                prepared.ids,
                await tokenization.max_tokens(self._target, prepared, self._options.max_tokens),
                self._options.draft_tokens,
                prepared.end_id,
                prepared.stop_words,
            )
            target_engine = await self._engine(target, self._target, prepared)
            draft_engine = target_engine
            if self._options.draft_tokens:
                draft_engine = await self._engine(draft, self._draft, prepared)
            while not loop.finished:
                self.steps.append(await self._step(loop, target_engine, draft_engine))
            return await tokenization.text(target, loop.tokens)

    async def _engine(self, calls: Calls, server: Server, prepared: Prepared) -> Engine:
        is_target = server is self._target
        model = self._options.target_model if is_target else self._draft_model
        declared = await server.inputs(model)
        common = tokenization.engine_inputs(self._options, prepared, declared, model)
        seed = self._options.seed
        if seed is None and self._options.samples:
            # Without a seed, an engine restarts its random numbers in every call, as with seed 0.
            seed = 0
        return Engine(calls, model, server.url, declared, common, seed)

    async def _step(self, loop: DraftLoop, target: Engine, draft: Engine) -> Step:
        options = self._options
        proposal, draft_logits = await self._propose(loop, draft)
        extra = {"draft_input_ids": np.array([proposal], np.int32)} if proposal else {}
        if proposal and options.use_draft_logits and draft_logits is not None:
            extra["draft_logits"] = draft_logits[None, : len(proposal)]
        verified, logits = await target.new(
            loop.ids,
            len(proposal) + 1,
            extra,
            generated=len(loop.tokens),
            minimum=self._remaining_minimum(loop),
            logits=options.accepted_logits,
        )
        round_ = loop.advance(proposal, verified)
        return Step(
            round_,
            draft_logits if options.draft_logits else None,
            None if logits is None else logits[: len(round_.tokens)],
        )

    def _remaining_minimum(self, loop: DraftLoop) -> int:
        """The number of tokens that the answer still lacks for the minimum of the request."""
        return (self._options.min_tokens or 0) - len(loop.tokens)

    async def _propose(
        self, loop: DraftLoop, draft: Engine
    ) -> tuple[list[int], NDArray[Any] | None]:
        length, generated = loop.draft_length(), len(loop.tokens)
        if not length:
            return [], None
        if not self._options.use_draft_logits:
            # A minimum of `length` stops the draft from ending early: the target decides about
            # the end of the answer.
            logits = self._options.draft_logits
            return await draft.new(
                loop.ids, length, {}, generated=generated, minimum=length, logits=logits
            )
        # Rejection sampling needs the logits from which the draft tokens were sampled, so the
        # distribution must not be changed. The draft may therefore propose the end token. While
        # the minimum suppresses the end token of the target, no proposal exceeds that minimum.
        remaining = self._remaining_minimum(loop)
        maximum = min(length, remaining) if remaining > 0 else length
        without_end: Tensors = {} if remaining > 0 else {"end_id": np.array([[-1]], np.int32)}
        return await draft.new(
            loop.ids,
            maximum,
            without_end,
            generated=generated,
            separate_draws=True,
            minimum=remaining,
            logits=True,
        )


def _require_same_tokens(
    target: Prepared, draft: Prepared, target_url: str, draft_url: str
) -> None:
    if target.ids != draft.ids:
        raise BadRequestError(
            f"the servers at {target_url} and {draft_url} tokenize a prompt differently; "
            "use a target and a draft with the same vocabulary"
        )
