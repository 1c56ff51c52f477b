"""The draft/target loop run by the client, against one server or two, many prompts at once."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from specdec.client import tokenization
from specdec.client.connection import Connection
from specdec.client.draft_loop import DraftLoop, Round
from specdec.client.engine import Engine
from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.client.grpc_calls import Calls, Server, Tensors
from specdec.client.model_names import DRAFT, TARGET
from specdec.client.sampling import Sampling
from specdec.client.tokenization import Prepared


@dataclass(frozen=True, kw_only=True)
class Options(Sampling):
    """What is asked for every prompt.

    Attributes:
        max_tokens: new tokens at most.
        draft_tokens: draft tokens a round at most; 0 asks the target alone.
        use_draft_logits: the target accepts by rejection sampling on the draft's logits.
        draft_logits, accepted_logits: return them with every round.
        check_vocabulary: refuse a prompt that the two servers tokenize differently.
        target_model, draft_model: Triton names of the engines; the draft's default is
            `tensorrt_llm` on a server of its own, else `tensorrt_llm_draft`.

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


@dataclass(frozen=True)
class Step:
    """One round with what was asked about it.

    Attributes:
        round: what it gained.
        draft_logits: [drafted, vocabulary], None unless asked for.
        accepted_logits: [len(round.tokens), vocabulary] of the target, None unless asked for.
    """

    round: Round
    draft_logits: NDArray[Any] | None = None
    accepted_logits: NDArray[Any] | None = None


@dataclass(frozen=True)
class Result:
    """The answer to one prompt, as far as it came.

    Attributes:
        index: the prompt's place among those given.
        text: what was generated, empty where `error` says why there is none.
        prompt_tokens: length of the prompt.
        tokens: ids of the answer.
        steps: the rounds in order.
        seconds: from the first call to the last.
        error: why the answer ended early, else None.
    """

    index: int
    prompt: str
    text: str = ""
    prompt_tokens: int = 0
    tokens: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    error: ClientError | None = field(default=None, compare=False)

    @property
    def drafted(self) -> int:
        """Draft tokens offered to the target."""
        return sum(step.round.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        """Those that are in the answer."""
        return sum(step.round.accepted for step in self.steps)


async def speculate(
    prompts: Sequence[str],
    options: Options,
    target: Connection,
    draft: Connection | None = None,
    *,
    concurrency: int = 16,
    tell: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Continue prompts; every prompt has a result, with its error where it has one.

    Args:
        prompts: texts.
        options: for all of them.
        target: server of the target, which also turns text into tokens and back.
        draft: server of the draft; the target's without one.
        concurrency: prompts at a time.
        tell: called with each result when it is there.

    Raises:
        BadRequestError: no prompts, or no concurrency.
    """
    if not prompts or concurrency < 1:
        raise BadRequestError("there is nothing to do; give a prompt and concurrency 1 or more")
    async with Server(target) as verifier, Server(draft or target) as proposer:
        return await _Run(verifier, proposer, options, draft is not None).all(
            prompts, concurrency, tell or (lambda _: None)
        )


class _Run:
    def __init__(self, target: Server, draft: Server, options: Options, two: bool) -> None:
        self._target = target
        self._draft = draft
        self._two = two
        name = options.draft_model or (TARGET if two else DRAFT)
        self._options = replace(options, draft_model=name)
        self._gone: UnreachableError | None = None

    async def all(
        self, prompts: Sequence[str], concurrency: int, tell: Callable[[Result], None]
    ) -> list[Result]:
        """The results in the order of the prompts, so many prompts at a time."""
        waiting = iter(enumerate(prompts))
        results: dict[int, Result] = {}

        async def work() -> None:
            for index, prompt in waiting:
                results[index] = await self._answer(Result(index, prompt))
                tell(results[index])

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(prompts))):
                group.create_task(work())
        return [results[index] for index in range(len(prompts))]

    async def _answer(self, result: Result) -> Result:
        # A server that is gone is not waited for again by every prompt.
        if self._gone is not None:
            return replace(result, error=self._gone)
        conversation = _Conversation(self._target, self._draft, self._options)
        started = time.monotonic()
        error: ClientError | None = None
        text = ""
        try:
            text = await conversation.answer(result.prompt, self._two)
        except ClientError as failure:
            error = failure
            self._gone = failure if isinstance(failure, UnreachableError) else self._gone
        loop = conversation.loop
        return replace(
            result,
            text=text,
            prompt_tokens=len(loop.ids) - len(loop.tokens) if loop else 0,
            tokens=tuple(loop.tokens) if loop else (),
            steps=tuple(conversation.steps),
            seconds=time.monotonic() - started,
            error=error,
        )


class _Conversation:
    """One prompt on its way through both servers."""

    def __init__(self, target: Server, draft: Server, options: Options) -> None:
        self.loop: DraftLoop | None = None
        self.steps: list[Step] = []
        self._target = target
        self._draft = draft
        self._options = options
        self._draft_model = options.draft_model or DRAFT

    async def answer(self, prompt: str, two: bool) -> str:
        """The text; with an error the rounds so far stay in `loop` and `steps`."""
        async with Calls(self._target) as target, Calls(self._draft) as draft:
            prepared = await tokenization.prepare(target, prompt, self._options)
            if two and self._options.check_vocabulary:
                other = await tokenization.prepare(draft, prompt, self._options)
                _same(prepared, other, self._target.url, self._draft.url)
            self.loop = loop = DraftLoop(
                prepared.ids,
                self._options.max_tokens,
                self._options.draft_tokens,
                prepared.end_id,
                prepared.stop_words,
            )
            verifier = await self._engine(target, self._target, prepared)
            proposer = verifier
            if self._options.draft_tokens:
                proposer = await self._engine(draft, self._draft, prepared)
            while not loop.finished:
                self.steps.append(await self._step(loop, verifier, proposer))
            return await tokenization.text(target, loop.tokens)

    async def _engine(self, calls: Calls, server: Server, prepared: Prepared) -> Engine:
        is_target = server is self._target
        model = self._options.target_model if is_target else self._draft_model
        declared = await server.inputs(model)
        common = tokenization.engine_inputs(self._options, prepared, declared, model)
        seed = self._options.seed
        if seed is None and self._options.draws:
            # An engine without a seed begins its numbers with every call as if it were 0.
            seed = 0
        return Engine(calls, model, server.url, declared, common, seed)

    async def _step(self, loop: DraftLoop, target: Engine, draft: Engine) -> Step:
        options = self._options
        proposal, drafts = await self._propose(loop, draft)
        offered = {"draft_input_ids": np.array([proposal], np.int32)} if proposal else {}
        if proposal and options.use_draft_logits and drafts is not None:
            offered["draft_logits"] = drafts[None, : len(proposal)]
        verified, logits = await target.new(
            loop.ids,
            len(proposal) + 1,
            offered,
            generated=len(loop.tokens),
            minimum=self._held(loop),
            logits=options.accepted_logits,
        )
        gained = loop.advance(proposal, verified)
        return Step(
            gained,
            drafts if options.draft_logits else None,
            None if logits is None else logits[: len(gained.tokens)],
        )

    def _held(self, loop: DraftLoop) -> int:
        """For how many tokens more the user's minimum keeps the answer from ending."""
        return (self._options.min_tokens or 0) - len(loop.tokens)

    async def _propose(
        self, loop: DraftLoop, draft: Engine
    ) -> tuple[list[int], NDArray[Any] | None]:
        length, generated = loop.draft_length(), len(loop.tokens)
        if not length:
            return [], None
        if not self._options.use_draft_logits:
            # A minimum of `length` keeps the draft from ending early: whether the answer ends is
            # the target's decision.
            logits = self._options.draft_logits
            return await draft.new(
                loop.ids, length, {}, generated=generated, minimum=length, logits=logits
            )
        # Rejection sampling compares with the logits that the tokens were drawn from, so nothing
        # may bend what is drawn: the draft may propose the end like any other token, and while
        # the user's minimum keeps the target from ending too, no proposal goes beyond it.
        held = self._held(loop)
        most = min(length, held) if held > 0 else length
        endless: Tensors = {} if held > 0 else {"end_id": np.array([[-1]], np.int32)}
        return await draft.new(
            loop.ids, most, endless, generated=generated, apart=True, minimum=held, logits=True
        )


def _same(target: Prepared, draft: Prepared, target_url: str, draft_url: str) -> None:
    if target.ids != draft.ids:
        raise BadRequestError(
            f"the servers at {target_url} and {draft_url} give one prompt different tokens; "
            "target and draft need one vocabulary"
        )
