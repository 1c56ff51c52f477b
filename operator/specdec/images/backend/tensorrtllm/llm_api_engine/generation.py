"""Generation of the stand-in: rounds of a proposal and one verification by the target."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ..reference_engine.errors import RequestError
from ..reference_engine.request import Request, Update
from ..reference_engine.sampling import Sampling
from ..reference_engine.scheduler import CANCELLED, Scheduler
from .drafting import Drafter, NGramPool, NGrams, Suffixes, SuffixPool
from .settings import Speculation

_POOL = 64


@dataclass
class Progress:
    """An answer so far.

    Attributes:
        tokens: new ids.
        drafted, accepted: draft tokens verified, and kept.
        steps: forward passes of the target that gave tokens.
        ended: whether the end-of-text token came.
        updates: what the engine reported of each step, for times and blocks.
    """

    tokens: list[int] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    ended: bool = False
    updates: list[Update] = field(default_factory=list)


class Generator:
    """Generates on a target's scheduler; any number of threads may call `run`.

    `draft` is the scheduler of the draft model, for the kind that has one.
    """

    def __init__(
        self, target: Scheduler, draft: Scheduler | None, speculation: Speculation
    ) -> None:
        self._target = target
        self._draft = draft
        self._speculation = speculation
        options = speculation.options
        self._shared = self._ngrams() if options.get("is_public_pool") else None
        pooled = speculation.kind == "SA" and options.get("enable_global_pool")
        self._suffixes = (
            SuffixPool(int(options.get("global_pool_size") or _POOL)) if pooled else None
        )
        self._recent: deque[float] = deque(maxlen=speculation.window or None)
        self._rates: deque[float] = deque(maxlen=speculation.rate_window or None)
        self._stopped = False
        self._active = 0
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether the acceptance threshold has stopped drafting for good."""
        return self._stopped

    def run(
        self,
        prompt: list[int],
        max_new: int,
        rules: Sampling,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Progress]:
        """Yield the answer after each step; the last one is complete.

        Raises:
            RequestError: the request cannot run, or was cancelled.
        """
        drafter, progress = self._drafter(), Progress()
        with self._lock:
            self._active += 1
        try:
            while len(progress.tokens) < max_new and not progress.ended:
                if cancelled():
                    raise CANCELLED
                tokens = prompt + progress.tokens
                room = max_new - len(progress.tokens) - 1
                drafts = self._proposal(drafter, tokens, room, rules)
                self._step(tokens, drafts, rules, progress)
                yield progress
        except GeneratorExit:
            # The caller left at the last token, or at a stop word.
            self._judge(progress)
            raise
        else:
            self._judge(progress)
        finally:
            if drafter is not None:
                drafter.close()
            with self._lock:
                self._active -= 1

    def _step(
        self, tokens: list[int], drafts: list[int], rules: Sampling, progress: Progress
    ) -> None:
        update = _answer(self._target, tokens, len(drafts) + 1, rules, drafts)
        progress.tokens += update.tokens
        progress.drafted += update.drafted
        progress.accepted += update.accepted
        progress.steps += 1
        progress.updates.append(update)
        if update.drafted:
            self._judge_step(update.accepted / update.drafted)
        # A step gives one token more than it accepts, unless the answer ends.
        progress.ended = len(update.tokens) <= update.accepted

    def _proposal(
        self, drafter: Drafter | None, tokens: list[int], room: int, rules: Sampling
    ) -> list[int]:
        length = min(self._speculation.length_for(self._active), room)
        if self._stopped or length < 1:
            return []
        if self._draft is not None:
            return list(_answer(self._draft, tokens, length, rules, []).tokens)
        return drafter.propose(tokens, length) if drafter is not None else []

    def _drafter(self) -> Drafter | None:
        if self._speculation.kind == "NGram":
            return NGrams(self._shared or self._ngrams())
        if self._speculation.kind == "SA":
            longest = int(self._speculation.options.get("max_matching_ngram_size", -1))
            return Suffixes(longest, self._suffixes)
        return None

    def _ngrams(self) -> NGramPool:
        options = self._speculation.options
        return NGramPool(
            int(options.get("max_matching_ngram_size", 4)) or 4,
            keep_all=bool(options.get("is_keep_all", True)),
            use_oldest=bool(options.get("is_use_oldest", True)),
        )

    def _judge(self, progress: Progress) -> None:
        """Stop drafting for good where too few draft tokens of a step were accepted."""
        if self._speculation.window and progress.steps:
            with self._lock:
                accepted = len(progress.tokens) / progress.steps - 1
                self._stopped |= _low(self._recent, accepted, self._speculation.threshold)

    def _judge_step(self, rate: float) -> None:
        """Stop drafting for good where too small a share of the draft tokens was accepted."""
        if self._speculation.rate_window:
            with self._lock:
                self._stopped |= _low(self._rates, rate, self._speculation.rate_threshold)


def _low(recent: deque[float], value: float, threshold: float) -> bool:
    """Whether the mean of a full window, with the value, is below the threshold."""
    recent.append(value)
    return len(recent) == recent.maxlen and sum(recent) / len(recent) < threshold


def _answer(
    scheduler: Scheduler, tokens: list[int], new: int, rules: Sampling, drafts: list[int]
) -> Update:
    """One call of an engine; its only update is the last one."""
    done = threading.Event()
    updates: list[Update] = []

    def listen(update: Update) -> None:
        updates.append(update)
        if update.finished:
            done.set()

    draft = np.array(drafts, np.int64) if drafts else None
    request = Request(np.array(tokens, np.int64), new, rules=rules, draft=draft)
    (refusal,) = scheduler.submit([[scheduler.ticket(request, listen)]])
    if refusal is not None:
        raise refusal
    done.wait()
    last = updates[-1]
    if last.error is not None:
        raise RequestError(str(last.error), last.error.kind)
    return last
