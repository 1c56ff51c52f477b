"""Run what takes long for a large body in a thread, so that streams and probes go on."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

# The work for a smaller body takes less time than a change of threads costs others.
INLINE_BYTES = 64 << 10
# The event loop gets the interpreter back from the thread after this time, each time it has waited
# for the network. Python's own interval is ten times as long.
_SWITCH_SECONDS = 0.0005
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
# One at a time: the work needs several times the memory of its body.
_THREAD = ThreadPoolExecutor(1, "large-bodies")


async def off_loop(
    size: int,
    function: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **options: _Arguments.kwargs,
) -> _Result:
    """The function's result; it runs in the thread if the body has more than `INLINE_BYTES`."""
    if size <= INLINE_BYTES:
        return function(*arguments, **options)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, partial(function, *arguments, **options))


def set_switch_interval() -> None:
    """Let the event loop wait less for the thread; a program calls it once."""
    sys.setswitchinterval(_SWITCH_SECONDS)
