"""Keeps objects of finished engine calls alive until Triton's own threads are done with them."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Far longer than a thread is off the processor, far shorter than memory could add up.
_SECONDS = 0.25


class Linger:
    """Delays the release of what came from an engine.

    A response and the iterator it came through are shared with threads of the stub, which drop
    them without holding Python's lock. Whoever is last frees NumPy arrays, and a free without the
    lock corrupts the heap: sixteen clients crashed Triton 2.51 within a thousand calls. Kept for a
    while, responses are mostly dropped last by Python; and their arrays stay until nobody else
    holds them, however long the stub's threads were off the processor.
    """

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._lock = threading.Lock()

    def keep(self, item: Any, arrays: Iterable[Any] = ()) -> None:
        """Keep an object and the arrays in it, and release those whose time has passed."""
        now = time.monotonic()
        expired = []
        with self._lock:
            self._kept.append(_Kept(now, item, list(arrays)))
            while now - self._kept[0].since > _SECONDS:
                expired.append(self._kept.popleft())
        # Outside the lock: releasing a Triton object takes a message to the server process.
        for one in expired:
            one.item = None
        held = [array for one in expired for array in _held_elsewhere(one.arrays)]
        if held:
            with self._lock:
                self._kept.append(_Kept(now, None, held))


@dataclass
class _Kept:
    since: float
    item: Any
    arrays: list[Any]


def _held_elsewhere(arrays: list[Any]) -> list[Any]:
    """Empty the list; those of the arrays that somebody else has as well."""
    held = []
    while arrays:
        array = arrays.pop()
        # One reference is the name above, one the question's own.
        if sys.getrefcount(array) > 2:
            held.append(array)
    return held
