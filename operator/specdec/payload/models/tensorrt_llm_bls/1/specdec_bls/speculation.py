"""The draft/target loop of one prompt: draft proposes, target verifies, repeat.

The scheme is speculative decoding (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
arXiv:2302.01318). Acceptance itself happens inside the target's engine, which answers with the
accepted draft tokens and one token of its own; this module sizes the rounds and ends the answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specdec_bls.ahead import DraftAhead, Early
from specdec_bls.task import (
    Engine,
    EngineError,
    Prefix,
    Task,
    Tensors,
    new_tokens,
    token_log_probs,
)

_LONGEST_PART = 8
# Longer than any proposal takes; a draft whose process died never answers.
_PATIENCE_SECONDS = 1.0
_OUTPUTS = ("output_ids", "sequence_length")


class DraftError(EngineError):
    """The draft failed; the target alone can still finish the answer."""


@dataclass(frozen=True)
class Chunk:
    """New tokens of an answer and what they cost.

    Attributes:
        tokens: in order, without the prefix.
        log_probs: one for each token, or none.
        drafted, accepted: draft tokens offered to and accepted by the target.
        rounds: verification steps, 0 on the plain path.
        early: whether the proposal was there before the round began.
        draft_seconds, verify_seconds: how long the two calls of a round took.
        finished: nothing follows.
        extras: further tensors of the target, on the plain path.
    """

    tokens: list[int]
    log_probs: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    early: bool = False
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    finished: bool = False
    extras: Tensors = field(default_factory=dict)


class Generation:
    """The answer to one task as it grows.

    Attributes:
        tokens: generated so far.
    """

    def __init__(
        self, task: Task, target: Engine, draft: Engine | None, ahead: DraftAhead | None = None
    ) -> None:
        self.task = task
        # A sampled answer shall follow from its seed alone, not from what was ready in time.
        self._ahead = ahead if task.seed is None and not task.use_draft_logits else None
        self._coming: Future[Early] | None = None
        self.tokens: list[int] = []
        self._prefix = Prefix(task.prompt)
        self._part = 1
        self._target = target
        self._draft = draft
        self._longest_stop = max((len(word) for word in task.stop_words), default=0)

    def step(self, draft_tokens: int) -> Chunk:
        """One round: at most `draft_tokens` proposed, accepted ones and one more token gained.

        Raises:
            DraftError: the draft refused; nothing has changed.
            EngineError: the target refused.
        """
        # The target always adds one token, so drafting the last one would be wasted.
        length = min(draft_tokens, self._remaining() - 1)
        early = self._early() if length > 0 else None
        begun = time.perf_counter()
        if early is not None:
            proposal, logits = early.tokens[:length], None
        else:
            proposal, logits = self._propose(length) if length > 0 else ([], None)
        drafted = time.perf_counter()
        coming = self._draft_ahead(proposal)
        answer = self._verify(proposal, logits)
        verified = time.perf_counter()
        new = new_tokens(answer, self._prefix.size, "tensorrt_llm")[: len(proposal) + 1]
        agreed = _common_prefix(proposal, new)
        kept, ended = self._keep(new)
        # What was drafted ahead took for granted that the whole proposal would be accepted.
        self._coming = coming if agreed == len(proposal) < len(kept) else None
        return Chunk(
            tokens=kept,
            log_probs=token_log_probs(answer, len(kept)),
            drafted=len(proposal),
            accepted=min(agreed, len(kept)),
            rounds=1,
            early=early is not None,
            draft_seconds=drafted - begun if early is None else early.seconds,
            verify_seconds=verified - drafted,
            # Without a token of its own behind the agreed ones the target has met the end.
            finished=ended or len(new) <= agreed or self._remaining() <= 0,
        )

    def plain(self, tokens: int = 0) -> Generator[Chunk, None, None]:
        """So many tokens from the target alone, 0 for the rest; in parts if the task streams.

        Every part is an engine call of its own, since waiting for several answers of one call can
        lock up the whole server (ADR 0070). Parts double from one token to `_LONGEST_PART`, so
        that the first one comes at once and a call's cost spreads over many tokens.

        Raises:
            EngineError: the target refused.
        """
        asked = min(tokens or self._remaining(), self._remaining())
        if not self.task.stream or self.task.undivided:
            yield self._plain_part(asked)
            return
        while asked > 0:
            part = self._plain_part(min(self._part, asked))
            yield part
            if part.finished:
                return
            asked -= len(part.tokens)
            self._part = min(2 * self._part, _LONGEST_PART)

    def _plain_part(self, asked: int) -> Chunk:
        self._coming = None
        answer = self._target.call(self._plain_inputs(asked), self._outputs())
        kept, ended = self._keep(new_tokens(answer, self._prefix.size, "tensorrt_llm"))
        extras = {name: answer[name] for name in self.task.outputs if name in answer}
        return Chunk(
            kept,
            token_log_probs(answer, len(kept)),
            # Fewer tokens than asked for: the target has met the end.
            finished=ended or len(kept) < asked or self._remaining() <= 0,
            extras=extras,
        )

    def _plain_inputs(self, asked: int) -> Tensors:
        inputs = self.task.inputs(self._prefix.ids, asked, min(self._remaining_minimum(), asked))
        inputs |= self.task.plain
        if self.task.log_probs:
            inputs["return_log_probs"] = np.array([[True]])
        return inputs

    def _early(self) -> Early | None:
        """The proposal that was made while the target verified the last one, if it fits.

        Waits for the draft, which is nearer to its end than a new call would be, unless it died.
        """
        coming, self._coming = self._coming, None
        if coming is None:
            return None
        try:
            early = coming.result(timeout=_PATIENCE_SECONDS)
        except (EngineError, NotYet):
            # The round's own call finds out whether the draft still answers.
            return None
        return early if early.tokens and early.guess == self.tokens[-1] else None

    def _draft_ahead(self, proposal: list[int]) -> Future[Early] | None:
        """Let the draft go on behind its proposal: a guess at the target's token, then more."""
        # At least the guess, a draft token and the target's own have to fit behind it.
        room = self._remaining() - len(proposal) - 2
        if self._ahead is None or not proposal or room < 1:
            return None
        draft = self._ahead.draft
        ids = np.concatenate([self._prefix.ids, np.array([proposal], np.int32)], axis=1)
        length = min(len(proposal), room) + 1

        def propose() -> list[int]:
            inputs = self.task.inputs(ids, length, min_tokens=length)
            answer = draft.call(inputs, _OUTPUTS)
            tokens = new_tokens(answer, ids.shape[1], "tensorrt_llm_draft")[:length]
            if not tokens:
                raise DraftError("tensorrt_llm_draft proposed nothing")
            return tokens

        return self._ahead.start(propose)

    def _propose(self, length: int) -> tuple[list[int], NDArray[np.generic] | None]:
        outputs = _OUTPUTS
        if self.task.use_draft_logits:
            inputs = self._proposal_with_logits(length)
            outputs = (*_OUTPUTS, "generation_logits")
        else:
            # A minimum of `length` keeps the draft from ending early: whether the answer ends is
            # the target's decision.
            inputs = self.task.inputs(self._prefix.ids, length, min_tokens=length)
        if self._draft is None:
            raise DraftError("this server has no draft model")
        try:
            answer = self._draft.call(inputs, outputs)
            proposal = new_tokens(answer, self._prefix.size, "tensorrt_llm_draft")[:length]
            return proposal, self._draft_logits(answer, len(proposal))
        except EngineError as error:
            raise DraftError(str(error)) from error

    def _proposal_with_logits(self, length: int) -> Tensors:
        """Inputs of a draft call whose tokens are drawn from the very logits it returns.

        Rejection sampling compares with those, so nothing may bend what is drawn: the draft may
        propose the end like any other token, or while the user's minimum keeps the target from
        ending as well, no proposal goes beyond that.
        """
        held = self._remaining_minimum()
        most = min(length, held) if held > 0 else length
        inputs = self.task.inputs(self._prefix.ids, most, min_tokens=min(held, most), apart=True)
        if held <= 0:
            inputs["end_id"] = np.array([[-1]], np.int32)
        inputs["return_generation_logits"] = np.array([[True]])
        return inputs

    def _draft_logits(self, answer: Tensors, count: int) -> NDArray[np.generic] | None:
        if not self.task.use_draft_logits or count == 0:
            return None
        logits = answer.get("generation_logits")
        if logits is None or not logits.size:
            raise EngineError(
                "tensorrt_llm_draft returned no generation logits: "
                "build the draft with them or leave use_draft_logits out"
            )
        # [1, beam, steps, vocabulary] -> [1, steps, vocabulary]. With fast logits one step holds
        # a handle in place of the values; it passes unchanged.
        rows = logits.reshape(-1, logits.shape[-1])
        return rows[None, :count]

    def _verify(self, proposal: list[int], logits: NDArray[np.generic] | None) -> Tensors:
        length = len(proposal) + 1
        inputs = self.task.inputs(self._prefix.ids, length, self._remaining_minimum())
        outputs: tuple[str, ...] = _OUTPUTS
        if proposal:
            inputs["draft_input_ids"] = np.array([proposal], np.int32)
        if logits is not None:
            inputs["draft_logits"] = logits
        if self.task.log_probs:
            inputs["return_log_probs"] = np.array([[True]])
            outputs = (*_OUTPUTS, "output_log_probs", "cum_log_probs")
        return self._target.call(inputs, outputs)

    def _outputs(self) -> tuple[str, ...]:
        wanted = ("output_log_probs", "cum_log_probs") if self.task.log_probs else ()
        return (*_OUTPUTS, *wanted, *self.task.outputs)

    def _remaining(self) -> int:
        return self.task.max_tokens - len(self.tokens)

    def _remaining_minimum(self) -> int:
        return min(self.task.min_tokens - len(self.tokens), self._remaining())

    def _keep(self, new: Sequence[int]) -> tuple[list[int], bool]:
        """Append tokens up to the end of the answer; the ones kept, and whether it ended."""
        fitting = list(new[: self._remaining()])
        for count, token in enumerate(fitting, 1):
            self.tokens.append(token)
            self._prefix.append(token)
            if self._ends():
                return fitting[:count], True
        return fitting, False

    def _ends(self) -> bool:
        if self.tokens[-1] == self.task.end_id:
            return True
        # As in the engines, a stop word may begin in the prompt; its last token never lies there.
        missing = self._longest_stop - len(self.tokens)
        before = self.task.prompt[-missing:] if missing > 0 else ()
        tail = (*before, *self.tokens[-self._longest_stop :])
        return any(tail[-len(word) :] == word for word in self.task.stop_words)


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return min(len(first), len(second))
