"""The health check behind the liveness probe; the kubelet restarts the operator if it fails.

`Runtime.check_health` calls `check` with the state of the queue, the resync and the watches. The
check fails only for states that a restart fixes.
"""

from specdec.controller.queue import Health

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
