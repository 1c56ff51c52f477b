"""What a replica does with the Lease: stand by, become active, and exit when it loses the Lease.

`Runtime` enters `hold_lease` at its start, or `single_replica` without leader election. A standby
is logged in and healthy, but reconciles nothing. A process that has lost the
Lease writes nothing more: it exits at once, and the next holder repeats unfinished work.
"""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from specdec.cluster import metrics
from specdec.controller.leader_election import Lease, LeaseLostError

logger = logging.getLogger(__name__)


def unique_identity() -> str:
    """A name for this process; unique even among the containers of one pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def exit_process() -> None:
    """Exit without any cleanup, because cleanup might write."""
    os._exit(1)


def write_fence(lease: Lease, exit_now: Callable[[], None] = exit_process) -> Callable[[], None]:
    """Return a check to call before each write.

    It exits the process if another operator may hold the Lease. The renewal task alone would be
    too late: when a frozen process resumes, its event loop may run a reconcile first.
    """

    def check() -> None:
        if lease.held:
            return
        logger.critical("the operator exits before a write: another may hold %s by now", lease)
        exit_now()
        raise LeaseLostError("it was not renewed in time")

    return check


@asynccontextmanager
async def single_replica() -> AsyncIterator[None]:
    """Be active without a Lease, as the only operator."""
    metrics.LEADER.set(1)
    yield
    metrics.LEADER.set(0)


@asynccontextmanager
async def hold_lease(
    lease: Lease, exit_now: Callable[[], None] = exit_process
) -> AsyncIterator[None]:
    """Wait for the Lease, renew it inside the block, and release it afterwards.

    The process exits when the Lease is lost.
    """
    await lease.acquire()
    renewal = asyncio.create_task(lease.renew(), name="lease")

    def exit_if_lost(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logger.critical("the operator exits: it lost %s: %s", lease, task.exception())
            exit_now()

    renewal.add_done_callback(exit_if_lost)
    metrics.LEADER.set(1)
    try:
        yield
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        await lease.release()
        metrics.LEADER.set(0)
