"""A warm standby: logged in and answering its probe, but at work only with the Lease in hand."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from specdec import metrics
from specdec.controller.leader_election import Lease, LostError

logger = logging.getLogger(__name__)


def identity() -> str:
    """A name that no other process has, not even the same pod's next container."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def end_process() -> None:
    """End the process where it stands.

    Nothing is closed in an orderly way: whoever lost the Lease may not write one thing more, and
    what it had begun is begun again by the next holder.
    """
    os._exit(1)


def fence(lease: Lease, end: Callable[[], None] = end_process) -> Callable[[], None]:
    """What a holder calls before each write: it ends the process when the Lease may be another's.

    A process that was frozen runs whatever is due when it wakes, and only then notices the time.
    """

    def check() -> None:
        if lease.held:
            return
        logger.critical("the operator ends before a write: %s may be another's by now", lease)
        end()
        raise LostError("it was not renewed in time")

    return check


@asynccontextmanager
async def alone() -> AsyncIterator[None]:
    """What `leading` is where there is no other operator and so no Lease."""
    metrics.LEADER.set(1)
    yield
    metrics.LEADER.set(0)


@asynccontextmanager
async def leading(
    lease: Lease, health_port: int, end: Callable[[], None] = end_process
) -> AsyncIterator[None]:
    """Wait for the Lease, then hold it; the process ends when it is lost.

    While waiting, /healthz is answered on `health_port` (0: nowhere), which kopf takes over.
    """
    async with _answering(health_port):
        await lease.acquire()
    keeper = asyncio.create_task(lease.keep(), name="lease")

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logger.critical("the operator ends: it lost %s: %s", lease, task.exception())
            end()

    keeper.add_done_callback(ended)
    metrics.LEADER.set(1)
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await lease.release()
        metrics.LEADER.set(0)


@asynccontextmanager
async def _answering(port: int) -> AsyncIterator[None]:
    """The probe of a replica that stands by: it is well as long as it answers."""
    if not port:
        yield
        return
    application = web.Application()
    application.add_routes([web.get("/healthz", _healthy)])
    runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"standby": True})
