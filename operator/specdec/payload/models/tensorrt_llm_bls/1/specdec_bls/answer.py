"""Runs one task from its first round to its last token and hands out what a client gets."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from specdec_text import Tokenizer

from specdec_bls.ahead import DraftAhead
from specdec_bls.policy import FixedLength, Lengths
from specdec_bls.speculation import Chunk, DraftError, Generation
from specdec_bls.task import Cancelled, Engine, Task, Tensors
from specdec_bls.text import Detokenizer, StopText


class Meter(Protocol):
    """Counts what the server did."""

    def chunk(self, chunk: Chunk) -> None:
        """One more chunk was generated."""

    def draft_failed(self, words: str) -> None:
        """The draft refused a call, in these words: an answer goes on without it."""


@dataclass(frozen=True)
class Part:
    """A piece of an answer as the client sees it.

    Attributes:
        text: new text of a stream, else the whole text.
        tokens: generated ones that this part brings.
        log_probs: one for each new token.
        cum_log_prob: sum over the whole answer so far.
        drafted, accepted, rounds: over the whole answer so far.
        extras: further tensors of the target.
    """

    text: str
    tokens: int = 0
    log_probs: list[float] = field(default_factory=list)
    cum_log_prob: float = 0.0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    extras: Tensors = field(default_factory=dict)


class Answer:
    """One task being answered.

    Args:
        task: what is asked.
        target: the model that decides every token.
        draft: the model that proposes, None without one.
        tokenizer: turns tokens into text.
        lengths: how many draft tokens each round proposes.
        meter: counts rounds and fallbacks.
        cancelled: asked once a round; true ends the answer.
        ahead: lets the draft propose while the target verifies, None never does.
    """

    def __init__(
        self,
        task: Task,
        target: Engine,
        draft: Engine | None,
        tokenizer: Tokenizer,
        lengths: Lengths,
        meter: Meter,
        cancelled: Cancelled,
        ahead: DraftAhead | None = None,
    ) -> None:
        self._task = task
        self._generation = Generation(task, target, draft, ahead)
        self._tokenizer = tokenizer
        self._lengths = lengths
        self._meter = meter
        self._cancelled = cancelled
        self._detokenizer = Detokenizer(tokenizer.decode)
        self._stop = StopText(task.stop_texts) if task.stop_texts else None
        self._part = Part("")
        self._ended = False
        self._stopped = False
        self._surplus = 0
        self._tokens: list[int] = []
        self._log_probs: list[float] = []

    def parts(self) -> Iterator[Part]:
        """Parts in order: one per round of a stream, else exactly one; none when cancelled.

        Raises:
            EngineError: the target refused.
        """
        with closing(self._chunks()) as chunks:
            for chunk in chunks:
                self._meter.chunk(chunk)
                kept = self._take(chunk)
                self._tokens += chunk.tokens[:kept]
                self._log_probs += chunk.log_probs[:kept]
                if self._task.stream:
                    yield self._part
                if self._ended:
                    break
        if not self._ended and self._cancelled():
            return
        if not self._task.stream:
            yield self._whole()
        elif rest := "" if self._stopped else self._detokenizer.flush():
            self._add(Chunk([]), 0, rest)
            yield self._part

    def abandon(self) -> None:
        """Leave the load: the thread of this answer waits for what never comes."""
        self._lengths.close()
        self._lengths = FixedLength(0)

    def without_draft(self, words: str) -> Iterator[Part]:
        """The parts that are missing, by the target alone, while a draft call does not return.

        From a thread of its own: the one in that call must not go on when it comes back.

        Args:
            words: what happened to the draft.

        Raises:
            EngineError: the target refused.
        """
        self._rest_draft(words)
        return self.parts()

    def _chunks(self) -> Generator[Chunk, None, None]:
        """Rounds and stretches of the target alone, as the policy wants them."""
        finished = False
        try:
            while not finished and not self._cancelled():
                length = self._lengths.length()
                finished = yield from self._round(length) if length else self._stretch()
        finally:
            self._lengths.close()

    def _round(self, length: int) -> Generator[Chunk, None, bool]:
        try:
            chunk = self._generation.step(length)
        except DraftError as error:
            self._rest_draft(str(error))
            return False
        self._lengths.round(
            chunk.drafted, chunk.accepted, chunk.draft_seconds, chunk.verify_seconds
        )
        yield chunk
        return chunk.finished

    def _rest_draft(self, words: str) -> None:
        """The target alone gives the same answer, only slower."""
        self._meter.draft_failed(words)
        self.abandon()

    def _stretch(self) -> Generator[Chunk, None, bool]:
        begun, tokens, finished = time.perf_counter(), 0, False
        # Closing ends the generation in the target, whichever way this loop is left.
        with closing(self._generation.plain(self._lengths.plain_tokens())) as chunks:
            for chunk in chunks:
                tokens += len(chunk.tokens)
                finished = chunk.finished
                yield chunk
                if self._cancelled():
                    return True
        self._lengths.plain(tokens, time.perf_counter() - begun)
        return finished

    def _take(self, chunk: Chunk) -> int:
        """Add a chunk up to the end of the answer; how many of its tokens count."""
        kept = len(chunk.tokens)
        text = ""
        if self._stop is not None:
            kept, text = self._until_stop(self._stop, chunk.tokens)
        elif self._task.stream:
            text = self._detokenizer.push(chunk.tokens)
        self._ended = chunk.finished or self._stopped
        self._add(chunk, kept, text)
        return kept

    def _until_stop(self, stop: StopText, tokens: list[int]) -> tuple[int, str]:
        # Token by token: a stop word may end inside a token that is not the chunk's last.
        text = ""
        for count, token in enumerate(tokens, 1):
            piece = self._detokenizer.push([token])
            cut = stop.cut(piece)
            if cut is not None:
                self._stopped = True
                # A character that this token begins decodes to something as well.
                self._surplus = len(piece) - cut + self._detokenizer.held
                return count, text + piece[:cut]
            text += piece
        return len(tokens), text

    def _add(self, chunk: Chunk, kept: int, text: str) -> None:
        self._part = Part(
            text=text,
            tokens=kept,
            log_probs=chunk.log_probs[:kept],
            cum_log_prob=self._part.cum_log_prob + sum(chunk.log_probs[:kept]),
            drafted=self._part.drafted + chunk.drafted,
            accepted=self._part.accepted + chunk.accepted,
            rounds=self._part.rounds + chunk.rounds,
            extras=chunk.extras,
        )

    def _whole(self) -> Part:
        prompt = () if self._task.exclude_input else self._task.prompt
        text = self._tokenizer.decode([*prompt, *self._tokens])
        part = self._part
        return Part(
            # Characters of the last token that lie behind a stop word.
            text=text[: len(text) - self._surplus],
            tokens=len(self._tokens),
            log_probs=self._log_probs,
            cum_log_prob=part.cum_log_prob,
            drafted=part.drafted,
            accepted=part.accepted,
            rounds=part.rounds,
            extras=part.extras,
        )
