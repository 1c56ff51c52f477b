"""How many draft tokens a round proposes: fixed, or the length that gives most tokens a second.

With acceptance rate a, a round of g draft tokens gives on average

    E(g) = 1 + a + ... + a^g = (1 - a^(g+1)) / (1 - a)

tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1) and takes D(g) + V(g) seconds, one
draft call and one verification; decoding without a draft gives one token in P seconds. The
adaptive policy chooses the g that maximises E(g) / (D(g) + V(g)), or none where 1 / P is more, as
goodput-driven speculation does (Liu et al. 2024, arXiv:2406.14066). All of it is measured: a per
request, drawn towards the server's; D, V and P per number of prompts in flight, because a loaded
engine charges for every token that an idle one verifies for nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from specdec_bls.estimate import Acceptance, Curve, Mean

# Tokens of a call without a draft, between two looks at what would be fastest.
_PLAIN_TOKENS = 16
# What another length must promise before it is taken: at once, and once a second.
_BIG_GAIN, _SMALL_GAIN = 1.1, 1.01
_SETTLE_SECONDS = 1.0
# Seconds between rounds of another length, which keep the estimates of other lengths true; the
# same while the draft rests, when a round costs more than it teaches; and between stretches
# without a draft.
_PROBE_SECONDS = 1.0
_REST_SECONDS = 2.0
_PLAIN_PROBE_SECONDS = 10.0
# Other lengths than the chosen one, in turn; one never measured at this load comes after so many
# rounds already.
_OFFSETS = (1, -1, 2, -2)
_QUIET_ROUNDS = 4


class Lengths(Protocol):
    """Draft lengths of one answer."""

    def length(self) -> int:
        """Draft tokens of the next round; 0 is a stretch without a draft."""

    def plain_tokens(self) -> int:
        """Tokens of a stretch without a draft, 0 for the rest of the answer."""

    def round(self, drafted: int, accepted: int, draft_seconds: float, seconds: float) -> None:
        """A round is over: what it offered, what was accepted, how long draft and target took."""

    def plain(self, tokens: int, seconds: float) -> None:
        """A stretch without a draft is over."""

    def close(self) -> None:
        """The answer is over."""


class FixedLength:
    """The same length in every round.

    Args:
        length: draft tokens; 0 never drafts.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def length(self) -> int:
        """Always the same."""
        return self._length

    def plain_tokens(self) -> int:
        """All that remain."""
        return 0

    def round(self, drafted: int, accepted: int, draft_seconds: float, seconds: float) -> None:
        """Nothing to learn."""

    def plain(self, tokens: int, seconds: float) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class Costs:
    """Seconds that calls take while so many prompts are in flight."""

    draft: Curve = field(default_factory=lambda: Curve(through_zero=True))
    verify: Curve = field(default_factory=Curve)
    plain: Mean = field(default_factory=Mean)
    quiet: int = 0

    def speed(self, length: int, acceptance: float) -> float:
        """Tokens a second of one prompt; 0.0 where nothing is known."""
        if length == 0:
            # A verification of nothing is a step without a draft, where none was measured.
            seconds = self.plain.value or self.verify.at(0)
            return 1 / seconds if seconds > 0 else 0.0
        seconds = self.draft.at(length) + self.verify.at(length)
        return expected_tokens(length, acceptance) / seconds if seconds > 0 else 0.0


def expected_tokens(length: int, acceptance: float) -> float:
    """Tokens of a round: the accepted ones and the target's own."""
    if acceptance >= 1.0:
        return length + 1.0
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


class AdaptiveLength:
    """What all answers of this server share: costs, the server's acceptance, probes.

    Args:
        least, most: bounds of the length; with `least` 0 the draft may rest altogether.
        start: length until something is measured.
        tell: hears every length that an answer settles on.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        least: int,
        most: int,
        start: int,
        tell: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.candidates = range(least, most + 1)
        self.start = min(max(start, least), most)
        self.tell = tell
        self.clock = clock
        self.acceptance = Acceptance()
        self.lock = threading.Lock()
        self._costs: defaultdict[int, Costs] = defaultdict(Costs)
        self._answers = 0
        self._probed = self._rested = clock()
        self._turn = 0

    def answer(self) -> AdaptiveAnswer:
        """The policy of one more answer in flight."""
        with self.lock:
            self._answers += 1
        return AdaptiveAnswer(self)

    def leave(self) -> None:
        """One answer less in flight; the caller holds the lock."""
        self._answers -= 1

    @property
    def costs(self) -> Costs:
        """Costs at the present load: numbers of prompts in flight up to twice apart are alike."""
        return self._costs[self._answers.bit_length()]

    def probe(self, chosen: int) -> int | None:
        """Another length to try now, for what it teaches; None mostly."""
        costs, now = self.costs, self.clock()
        costs.quiet += 1
        low, high = self.candidates[0], self.candidates[-1]
        if low == 0 and chosen and self._plain_is_due(costs, now):
            self._rested, costs.quiet = now, 0
            return 0
        offset = _OFFSETS[self._turn % len(_OFFSETS)]
        other = min(max(chosen + offset, low, 1), high)
        fresh = costs.quiet > _QUIET_ROUNDS and not costs.verify.knows(other)
        pause = _PROBE_SECONDS if chosen else _REST_SECONDS
        if now - self._probed < pause and not fresh:
            return None
        self._turn += 1
        self._probed, costs.quiet = now, 0
        return None if other == chosen else other

    def hope(self) -> None:
        """A probe went better than expected while the draft rests: the next look probes again."""
        self._probed = -math.inf

    def _plain_is_due(self, costs: Costs, now: float) -> bool:
        if costs.plain.count == 0:
            return costs.verify.count > 2
        return now - self._rested > _PLAIN_PROBE_SECONDS


class AdaptiveAnswer:
    """Draft lengths of one answer; see `AdaptiveLength`."""

    def __init__(self, server: AdaptiveLength) -> None:
        self._server = server
        self._own = Acceptance(prior=server.acceptance)
        self._chosen = server.start
        self._changed = server.clock()

    def length(self) -> int:
        """The best length, sometimes another one to learn from."""
        with self._server.lock:
            self._choose()
            probe = self._server.probe(self._chosen)
            return self._chosen if probe is None else probe

    def plain_tokens(self) -> int:
        """A stretch, then another look."""
        return _PLAIN_TOKENS

    def round(self, drafted: int, accepted: int, draft_seconds: float, seconds: float) -> None:
        """Learn from a round."""
        with self._server.lock:
            costs, now = self._server.costs, self._server.clock()
            costs.verify.add(drafted, seconds)
            if drafted:
                costs.draft.add(drafted, draft_seconds)
                if self._chosen == 0 and accepted == drafted and self._own.value(now) < 0.5:
                    self._server.hope()
                self._own.add(drafted, accepted, now)
                self._server.acceptance.add(drafted, accepted, now)

    def plain(self, tokens: int, seconds: float) -> None:
        """Learn from a stretch without a draft."""
        if tokens:
            with self._server.lock:
                self._server.costs.plain.add(seconds / tokens)

    def close(self) -> None:
        """Leave the load."""
        with self._server.lock:
            self._server.leave()

    def _choose(self) -> None:
        costs, now = self._server.costs, self._server.clock()
        acceptance = self._own.value(now)
        if costs.verify.count == 0 and costs.plain.count == 0:
            return
        speeds = {length: costs.speed(length, acceptance) for length in self._server.candidates}
        best = max(speeds, key=lambda length: speeds[length])
        settled = now - self._changed > _SETTLE_SECONDS
        needed = _SMALL_GAIN if settled else _BIG_GAIN
        if best != self._chosen and speeds[best] > needed * speeds[self._chosen]:
            self._chosen = best
            self._changed = now
            self._server.tell(best)
