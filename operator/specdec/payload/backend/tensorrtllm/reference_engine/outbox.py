"""Answers on their way to the server, which a send waits for: several threads send them.

Parts of one row leave in their order and the end of a conversation after all answers have been
taken; rows leave in any order among each other, as they do on a GPU.
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
        """Ask the server whether the client went away."""


@dataclass(eq=False)
class Conversation:
    """One Triton request: its response sender, and the tickets of its rows.

    Attributes:
        wanted: names of the outputs that the client asked for.
        arrived: on the monotonic clock.
        open_rows: rows whose last answer is not made yet.
    """

    sender: Sender
    request_id: str
    wanted: tuple[str, ...]
    arrived: float = field(default_factory=time.monotonic)
    tickets: list[Ticket] = field(default_factory=list)
    open_rows: int = 0

    def cancel(self) -> None:
        """End every row."""
        for ticket in self.tickets:
            ticket.cancel()


@dataclass(eq=False)
class Answer:
    """One answer of a row.

    Attributes:
        row: of the conversation.
        response: what Triton's sender takes; None is nothing but the end.
        last: whether the conversation ends with it.
        due: moment of the monotonic clock at which it leaves at the earliest.
    """

    conversation: Conversation
    row: int
    response: Any
    last: bool
    due: float = 0.0


class _Open:
    """What the outbox knows of a conversation; its lock guards all of it.

    Attributes:
        away: answers that were queued and are not sent, and the question whether the client went
            away while that is asked: a sender must not be asked after its last answer.
        behind: for each row with an answer under way those that wait for it.
        ended: whether its last answer is queued.
        end: the last answer, while others have to be sent first.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.away = 0
        self.behind: dict[int, deque[Answer]] = {}
        self.ended = False
        self.end: Answer | None = None

    def put(self, answer: Answer) -> bool:
        """Note an answer; returns whether it may leave now."""
        self.away += 1
        if answer.last:
            self.ended = True
            self.end = None if self.away == 1 else answer
            return self.away == 1
        if answer.row in self.behind:
            self.behind[answer.row].append(answer)
            return False
        self.behind[answer.row] = deque()
        return True

    def took(self, answer: Answer) -> Answer | None:
        """Note that an answer was sent; returns the one that may leave now."""
        waiting = self.behind[answer.row]
        if waiting:
            self.away -= 1
            return waiting.popleft()
        del self.behind[answer.row]
        return self.less()

    def less(self) -> Answer | None:
        """Note that something is not away any more; returns the last answer if it may leave."""
        self.away -= 1
        if self.away > 1:
            return None
        end, self.end = self.end, None
        return end


class Outbox:
    """Sends answers and looks for clients that went away.

    Args:
        period: seconds between two looks.
        final: the flag of a conversation's last answer.
        warn: takes a sentence for the log.
        count: takes the number of open conversations, once a period where it has changed.
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
        self._open: dict[int, _Open] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._senders = [
            threading.Thread(target=self._run, name=f"sender {number}", daemon=True)
            for number in range(SENDERS)
        ]
        for thread in (self._watcher, *self._senders):
            thread.start()

    def open(self, conversation: Conversation) -> None:
        """Look after a conversation until its last answer."""
        with self._lock:
            self._open[id(conversation)] = _Open(conversation)

    def send(self, answer: Answer) -> None:
        """Queue an answer of an open conversation."""
        if answer.last and len(answer.conversation.tickets) > 1:
            # The row that happens to be the last need not wait for the others to be taken.
            self._put(replace(answer, last=False))
            answer = replace(answer, response=None, due=0.0)
        self._put(answer)

    def _put(self, answer: Answer) -> None:
        with self._lock:
            may_leave = self._open[id(answer.conversation)].put(answer)
        if may_leave:
            self._ready.put(answer)

    def cancel(self, request_id: str) -> int:
        """Cancel the conversations with this id; returns how many there were."""
        with self._lock:
            every = [one.conversation for one in self._open.values()]
        found = [one for one in every if one.request_id == request_id]
        for conversation in found:
            conversation.cancel()
        return len(found)

    def close(self) -> None:
        """Send what is queued and stop."""
        self._closing.set()
        self._watcher.join()
        for _ in self._senders:
            self._ready.put(None)
        for thread in self._senders:
            thread.join()

    def _run(self) -> None:
        # The kernel may end this thread's sleeps 0.05 ms late, to wake up less often; not here.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1))
        while (ready := self._ready.get()) is not None:
            answer: Answer | None = ready
            while answer is not None:
                self._deliver(answer)
                answer = self._took(answer)

    def _took(self, answer: Answer) -> Answer | None:
        key = id(answer.conversation)
        with self._lock:
            if answer.last:
                del self._open[key]
                return None
            return self._open[key].took(answer)

    def _deliver(self, answer: Answer) -> None:
        # Answers are queued in the order of their steps: nothing waits behind a later one. A sleep
        # of no time at all would take a twentieth of a millisecond.
        if (early := answer.due - time.monotonic()) > 0:
            time.sleep(early)
        sender = answer.conversation.sender
        try:
            if answer.response is None:
                sender.send(flags=self._final)
            elif answer.last:
                sender.send(answer.response, flags=self._final)
            else:
                sender.send(answer.response)
        except Exception as error:  # noqa: BLE001 - the client may be gone; others must not notice
            self._warn(f"an answer could not be sent: {error}")
            answer.conversation.cancel()

    def _watch(self) -> None:
        counted = 0
        while not self._closing.wait(self._period):
            with self._lock:
                opened = list(self._open.values())
            if len(opened) != counted:
                counted = len(opened)
                self._count(counted)
            for one in opened:
                self._ask(one)

    def _ask(self, one: _Open) -> None:
        with self._lock:
            if one.ended or not one.conversation.tickets:
                return
            one.away += 1
        try:
            if one.conversation.sender.is_cancelled():
                one.conversation.cancel()
        except Exception as error:  # noqa: BLE001 - nobody else could look after the others
            self._warn(f"the server does not say whether a client is there: {error}")
        with self._lock:
            end = one.less()
        if end is not None:
            self._ready.put(end)
