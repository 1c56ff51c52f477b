"""Let one chat at a time use the chat template; a short one never waits for long ones."""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from specdec.images.openai.errors import ApiError, overloaded


@dataclass(order=True)
class _Waiting:
    """A chat that waits; the shortest comes first, and of equal ones the earliest."""

    size: int
    number: int
    turn: "asyncio.Future[None]" = field(compare=False)


class Turns:
    """One turn at a time, with a limited number of waiting chats and a limited wait.

    Args:
        most: chats that wait; with more, the longest of them is refused.
        seconds: of a wait.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._waiting: list[_Waiting] = []
        self._busy, self._number = False, 0

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait for a turn, and keep it until the end of the context.

        Args:
            size: of the conversation, in bytes.

        Raises:
            ApiError: too many chats wait, or the wait was too long.
        """
        if self._busy:
            await self._wait(size)
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, size: int) -> None:
        self._number += 1
        waiting = _Waiting(size, self._number, asyncio.get_running_loop().create_future())
        insort(self._waiting, waiting)
        if len(self._waiting) > self._most:
            longest = self._waiting.pop().turn
            if not longest.done():
                longest.set_exception(self._overloaded())
        try:
            async with asyncio.timeout(self._seconds):
                await waiting.turn
        except TimeoutError:
            self._give_up(waiting)
            raise self._overloaded() from None
        except asyncio.CancelledError:
            self._give_up(waiting)
            raise

    def _give_up(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif waiting.turn.done() and not waiting.turn.cancelled() and not waiting.turn.exception():
            # The turn came at the same time.
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the shortest waiting chat; no other chat can take it before."""
        self._busy = False
        while self._waiting and not self._busy:
            turn = self._waiting.pop(0).turn
            # The client of a cancelled one leaves at this moment.
            if not turn.done():
                turn.set_result(None)
                self._busy = True

    def _overloaded(self) -> ApiError:
        return overloaded(
            f"more than {self._most} chats wait for the chat template, or this one for more than "
            f"{self._seconds:g} s; try again later"
        )
