"""The health check behind the liveness probe; the kubelet restarts the operator if it fails.

The process serves it with `serving`. `Runtime.check_health` calls `check` with the state of the
queue, the resync and the watches. The check fails only for states that a restart fixes.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from specdec.controller.queue import Health

logger = logging.getLogger(__name__)

# The queue's loop runs at least every five seconds. After this many seconds without a run it
# counts as dead.
MAX_IDLE = 60.0
# The queue cancels a reconcile after 300 seconds; at twice that the cancellation has failed.
MAX_RECONCILE = 600.0
# Intervals without a resync after which its task counts as dead.
MAX_MISSED_RESYNCS = 3.0


class UnhealthyError(Exception):
    """Why the operator must be restarted, in one sentence."""


def check(
    queue: Health, since_resync: float, interval: float, stale_object: str | None = None
) -> dict[str, float]:
    """The figures in seconds that the probe reports; raises UnhealthyError.

    `stale_object` names an object whose changes no watch reports.
    """
    if stale_object is not None:
        raise UnhealthyError(f"no watch reports the changes of {stale_object}")
    if queue.idle_seconds > MAX_IDLE:
        raise UnhealthyError(f"the queue has not run for {queue.idle_seconds:.0f} s")
    if queue.longest_reconcile_seconds > MAX_RECONCILE:
        running = queue.longest_reconcile_seconds
        raise UnhealthyError(f"a reconcile has run for {running:.0f} s")
    if since_resync > MAX_MISSED_RESYNCS * interval:
        raise UnhealthyError(f"the last resync was {since_resync:.0f} s ago")
    return {
        "idle": round(queue.idle_seconds, 1),
        "longestReconcile": round(queue.longest_reconcile_seconds, 1),
        "sinceResync": round(since_resync, 1),
    }


@asynccontextmanager
async def serving(
    port: int, check_health: Callable[[], Mapping[str, float]]
) -> AsyncIterator[None]:
    """Answer /healthz at a port (0: no probe) with the figures of the check, or with 500.

    Raises:
        OSError: the port is in use.
    """
    if not port:
        yield
        return

    async def answer(_: web.Request) -> web.Response:
        try:
            return web.json_response(dict(check_health()))
        except UnhealthyError as error:
            logger.debug("the probe fails: %s", error)
            return web.json_response({"error": str(error)}, status=500)

    application = web.Application()
    application.add_routes([web.get("/healthz", answer)])
    runner = web.AppRunner(
        application, handle_signals=False, access_log=None, shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
