"""Keep the watches running: start them again whenever a fault of the API server ends them.

The operator's process calls `keep_watching` once it is active. A restart lists all objects again,
so no change is lost. It logs in again, so a new token is used.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from specdec.cluster import metrics
from specdec.controller.queue import Backoff

logger = logging.getLogger(__name__)

# The health check ends the process if watches are missing for minutes. The pauses are shorter.
BACKOFF = Backoff(first=1.0, ceiling=30.0)
# Seconds. The end of watches that ran for longer counts as the first one again.
STEADY = 60.0


async def keep_watching(
    watch: Callable[[], Awaitable[None]],
    backoff: Backoff = BACKOFF,
    rng: random.Random | None = None,
) -> None:
    """Run `watch` again and again until this task is cancelled.

    Args:
        watch: logs in, and watches until a fault ends it.
        backoff: the pauses between two runs; they grow while runs are short.
        rng: the jitter of the pauses.
    """
    rng = rng or random.Random()  # noqa: S311 - jitter is not a secret
    failures = 0
    while True:
        started = _now()
        try:
            await watch()
            cause = "they ended without an error"
        except Exception as error:  # noqa: BLE001 - whatever ends the watches, they start again
            cause = _sentence(error)
        failures = 1 if _now() - started > STEADY else failures + 1
        pause = backoff.delay(failures, rng)
        metrics.WATCH_RESTARTS.inc()
        logger.warning("the watches start again in %.1f s: %s", pause, cause)
        await asyncio.sleep(pause)


def _sentence(error: Exception) -> str:
    """The message of an error on one line; kopf's errors also have the server's whole answer."""
    message = error.args[0] if error.args else ""
    return " ".join(str(message).split()) or type(error).__name__


def _now() -> float:
    return asyncio.get_running_loop().time()
