"""Send responses to Triton from several threads, because a send waits for the server.

Responses of one row are sent in order. Rows of a request are sent in any order, unless the request
is `ordered`: Triton's ensemble pairs outputs of its steps by the order in which they arrive, and
would give one row the text of another. The final response of a request is sent after all others
have been taken.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .request import Ticket

# A send takes some tenths of a millisecond, nearly all of it spent waiting for the server.
SENDERS = 4
# From Linux's prctl.h.
_PR_SET_TIMERSLACK = 29


class Sender(Protocol):
    """A response sender of Triton's."""

    def send(self, response: Any = ..., flags: int = ...) -> None:
        """Send an answer and wait until the server has it."""

    def is_cancelled(self) -> bool:
        """Ask the server whether the client has disconnected."""


@dataclass(eq=False)
class Exchange:
    """One Triton request with its response sender and the tickets of its rows.

    Attributes:
        outputs: names of the outputs that the client asked for.
        ordered: responses of all rows are sent in the order in which they were queued.
        arrived: on the monotonic clock.
        open_rows: rows without their last response yet.
    """

    sender: Sender
    request_id: str
    outputs: tuple[str, ...]
    arrived: float = field(default_factory=time.monotonic)
    tickets: list[Ticket] = field(default_factory=list)
    open_rows: int = 0
    ordered: bool = False

    def cancel(self) -> None:
        """End every row."""
        for ticket in self.tickets:
            ticket.cancel()


@dataclass(eq=False)
class Answer:
    """One response of a row.

    Attributes:
        row: of the request.
        response: what Triton's sender takes; None sends the final flag alone.
        last: whether the request ends with it.
        due: earliest time of sending, on the monotonic clock.
    """

    exchange: Exchange
    row: int
    response: Any
    last: bool
    due: float = 0.0


class _State:
    """The outbox's state of one request; the outbox's lock guards all of it.

    Attributes:
        pending: calls of the sender that have not returned: queued responses, and a check whether
            the client has disconnected. The last response must be the last call.
        behind: for each row that is sending a response, those that wait for it; one entry for all
            rows of an ordered request.
        ended: whether its last response is queued.
        end: the last response, while others have to be sent first.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.pending = 0
        self.behind: dict[int, deque[Answer]] = {}
        self.ended = False
        self.end: Answer | None = None

    def put(self, answer: Answer) -> bool:
        """Record a response; returns whether it may be sent now."""
        self.pending += 1
        if answer.last:
            self.ended = True
            self.end = None if self.pending == 1 else answer
            return self.pending == 1
        key = self._key(answer)
        if key in self.behind:
            self.behind[key].append(answer)
            return False
        self.behind[key] = deque()
        return True

    def took(self, answer: Answer) -> Answer | None:
        """Record that a response was sent; returns the next one that may be sent."""
        waiting = self.behind[self._key(answer)]
        if waiting:
            self.pending -= 1
            return waiting.popleft()
        del self.behind[self._key(answer)]
        return self.returned()

    def returned(self) -> Answer | None:
        """Record that a call of the sender returned; returns the last response if it is next."""
        self.pending -= 1
        if self.pending > 1:
            return None
        end, self.end = self.end, None
        return end

    def _key(self, answer: Answer) -> int:
        return 0 if self.exchange.ordered else answer.row


class Outbox:
    """Sends responses, and cancels requests whose client has disconnected.

    Args:
        period: seconds between two checks for disconnected clients.
        final: the flag of a request's last response.
        warn: logs a sentence.
        count: gets the number of open requests, once a period.
    """

    def __init__(
        self,
        period: float,
        final: int,
        warn: Callable[[str], None],
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._period = period
        self._final = final
        self._warn = warn
        self._count = count
        self._ready: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._open: dict[int, _State] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._senders = [
            threading.Thread(target=self._run, name=f"sender {number}", daemon=True)
            for number in range(SENDERS)
        ]
        for thread in (self._watcher, *self._senders):
            thread.start()

    def open(self, exchange: Exchange) -> None:
        """Track a request until its last response."""
        with self._lock:
            self._open[id(exchange)] = _State(exchange)

    def send(self, answer: Answer) -> None:
        """Queue a response of an open request."""
        if answer.last and len(answer.exchange.tickets) > 1:
            # The last row's response need not wait until those of other rows have been taken.
            self._put(replace(answer, last=False))
            answer = replace(answer, response=None, due=0.0)
        self._put(answer)

    def _put(self, answer: Answer) -> None:
        with self._lock:
            may_leave = self._open[id(answer.exchange)].put(answer)
        if may_leave:
            self._ready.put(answer)

    def cancel(self, request_id: str) -> int:
        """Cancel the requests with this id; returns their number."""
        with self._lock:
            exchanges = [state.exchange for state in self._open.values()]
        matching = [exchange for exchange in exchanges if exchange.request_id == request_id]
        for exchange in matching:
            exchange.cancel()
        return len(matching)

    def close(self) -> None:
        """Send what is queued and stop."""
        self._closing.set()
        self._watcher.join()
        for _ in self._senders:
            self._ready.put(None)
        for thread in self._senders:
            thread.join()

    def _run(self) -> None:
        # By default the kernel may end this thread's sleeps 0.05 ms late, to save wake-ups.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1))
        while (ready := self._ready.get()) is not None:
            answer: Answer | None = ready
            while answer is not None:
                self._deliver(answer)
                answer = self._took(answer)

    def _took(self, answer: Answer) -> Answer | None:
        key = id(answer.exchange)
        with self._lock:
            if answer.last:
                del self._open[key]
                return None
            return self._open[key].took(answer)

    def _deliver(self, answer: Answer) -> None:
        # Responses are queued in the order of their steps, so none waits behind a later one. A
        # sleep of zero seconds would take a twentieth of a millisecond.
        if (early := answer.due - time.monotonic()) > 0:
            time.sleep(early)
        sender = answer.exchange.sender
        try:
            if answer.response is None:
                sender.send(flags=self._final)
            elif answer.last:
                sender.send(answer.response, flags=self._final)
            else:
                sender.send(answer.response)
        except Exception as error:  # noqa: BLE001 - one lost client must not stop other requests
            self._warn(f"a response could not be sent: {error}")
            answer.exchange.cancel()

    def _watch(self) -> None:
        while not self._closing.wait(self._period):
            with self._lock:
                opened = list(self._open.values())
            self._count(len(opened))
            for state in opened:
                self._cancel_if_disconnected(state)

    def _cancel_if_disconnected(self, state: _State) -> None:
        with self._lock:
            if state.ended or not state.exchange.tickets:
                return
            state.pending += 1
        try:
            if state.exchange.sender.is_cancelled():
                state.exchange.cancel()
        except Exception as error:  # noqa: BLE001 - this thread must go on for the other requests
            self._warn(f"the server does not report whether a client is connected: {error}")
        with self._lock:
            end = state.returned()
        if end is not None:
            self._ready.put(end)
