"""SIMULATION: the clock of a device whose steps have one fixed length."""

from __future__ import annotations

import time


class Pace:
    """SIMULATION: steps of one fixed length, back to back while there is work.

    A simulated step begins when the device is free and its requests have arrived. Neither
    computation on the CPU nor a late wake-up makes a step longer. If the CPU needs longer than a
    step, that step ends late, and later steps make up for at most one step of the delay.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0

    def join(self, arrived: float) -> None:
        """Add a request that arrived at this time; parsing it counts towards the next step."""
        self._end = max(arrived, self._end)

    def end(self) -> float:
        """When to send the running step's responses: at its end, or now if that has passed."""
        now = time.monotonic()
        self._end = max(self._end + self._seconds, now - self._seconds)
        return max(self._end, now)

    def wait(self) -> None:
        """Sleep to the end of the running step."""
        # A sleep of zero seconds would take a twentieth of a millisecond.
        if (early := self._end - time.monotonic()) > 0:
            time.sleep(early)
