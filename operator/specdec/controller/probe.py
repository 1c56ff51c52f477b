"""Whether the operator works: an honest answer for the kubelet, which restarts it if not."""

from specdec.controller.queue import Health

# A queue that did not turn for this long (seconds) is dead; it turns every five.
IDLE = 60.0
# A reconcile is cancelled after 300 seconds; one that outlives twice that cannot be cancelled.
RECONCILE_LIMIT = 600.0
# So many resyncs in a row did not happen.
MISSED = 3.0


class UnhealthyError(Exception):
    """Why the operator should be restarted, in one sentence."""


def check(
    queue: Health, since_resync: float, interval: float, deaf: str | None = None
) -> dict[str, float]:
    """Figures in seconds for the probe's answer; raises UnhealthyError.

    `deaf` is an object of which no watch shows the changes.
    """
    if deaf is not None:
        raise UnhealthyError(f"no watch shows the changes of {deaf}")
    if queue.idle_for > IDLE:
        raise UnhealthyError(f"the queue has not turned for {queue.idle_for:.0f} s")
    if queue.longest_reconcile > RECONCILE_LIMIT:
        raise UnhealthyError(f"a reconcile has run for {queue.longest_reconcile:.0f} s")
    if since_resync > MISSED * interval:
        raise UnhealthyError(f"the last resync was {since_resync:.0f} s ago")
    return {
        "idle": round(queue.idle_for, 1),
        "longestReconcile": round(queue.longest_reconcile, 1),
        "sinceResync": round(since_resync, 1),
    }
