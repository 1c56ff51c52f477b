"""Drafts the next proposal while the target still verifies this one.

The draft assumes that all of its tokens will be accepted and proposes what follows them, its
guess at the target's own token first. Where all of that comes true, the next round needs no draft
call of its own; else what was drafted ahead is dropped. It is the "post-verify" of parallel
speculative decoding (Liu et al. 2024, arXiv:2408.11850).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from specdec_bls.task import Engine

# Longer than any proposal takes.
_LAST_SECONDS = 2.0


@dataclass(frozen=True)
class Early:
    """What the draft proposed ahead.

    Attributes:
        guess: the target's own token behind the assumed ones, as the draft sees it.
        tokens: the proposal behind that.
        seconds: how long the draft took.
    """

    guess: int
    tokens: list[int]
    seconds: float


class DraftAhead:
    """Threads that call the draft ahead, for so many answers at once.

    Args:
        answers: further ones do without, so that a loaded draft does not work in vain.
        draft: the model that proposes.
    """

    def __init__(self, answers: int, draft: Engine) -> None:
        self.draft = draft
        self._answers = answers
        self._pool = ThreadPoolExecutor(answers, thread_name_prefix="ahead")
        self._free = threading.BoundedSemaphore(answers)

    def start(self, propose: Callable[[], list[int]]) -> Future[Early] | None:
        """Call the draft in another thread; None while enough such calls are under way."""
        if not self._free.acquire(blocking=False):
            return None
        return self._pool.submit(self._propose, propose)

    def close(self) -> None:
        """Let running calls end; nobody waits for those of a draft that died."""
        for _ in range(self._answers):
            if not self._free.acquire(timeout=_LAST_SECONDS):
                break
        self._pool.shutdown(wait=False)

    def _propose(self, propose: Callable[[], list[int]]) -> Early:
        begun = time.perf_counter()
        try:
            guess, *tokens = propose()
        finally:
            self._free.release()
        return Early(guess, tokens, time.perf_counter() - begun)
