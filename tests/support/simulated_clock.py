"""An event loop whose clock skips every wait, so an hour of back-off takes a millisecond."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from typing_extensions import override

P = ParamSpec("P")


class _Jump(selectors.SelectSelector):
    """Advances the clock instead of waiting."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits and no timer is set"
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 seconds and skips every wait."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    @override
    def time(self) -> float:
        return self._jump.now


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new event loop whose clock skips every wait."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scenario)


def simulated_clock(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in an event loop whose clock skips every wait."""

    @wraps(test)
    def synchronous(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return synchronous
