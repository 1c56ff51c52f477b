"""Count the draft tokens of a server with the OpenAI API, for the verification Job.

The server's answers have no counts. So the Job reads the server's metrics before and after its
requests. Requests of other clients in that time count too.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec.client import metrics as counters
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import ClientError
from specdec.jobs import verify_counts

_PATH = "/v1"
# Some releases count at the end of a request, others when they next report on their iterations.
_COUNTED_SECONDS = 10.0
_POLL = 0.5


async def counted(
    connection: Connection, metrics: str | None, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Args:
        connection: of the server; the path of the OpenAI API is added.
        metrics: `host:port` of the server's metrics; None if several servers answer there.
        entries: the prompts.
        max_tokens: for prompts that have no limit of their own.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    return await asyncio.to_thread(_counted, connection, metrics, entries, max_tokens)


def _counted(
    connection: Connection, metrics: str | None, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    before = _read(metrics)
    endpoint, greedy = replace(connection, path=_PATH), {"model": "", "temperature": 0.0}
    _, status = verify_counts.answers(endpoint, entries, max_tokens, greedy)
    counts = {} if before is None else _counts(before, _after(metrics, before))
    return {**status, "active": False, **counts}


def _counts(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """The counts of draft tokens; empty if the server counts none, or restarted in between."""
    difference = counters.speculation(after) - counters.speculation(before)
    drafted, accepted = difference.drafted, difference.accepted
    if not counters.counts_drafts(after) or drafted < 0 or accepted < 0:
        return {}
    return verify_counts.drafts(drafted, accepted)


def _read(metrics: str | None) -> Mapping[str, float] | None:
    """All samples of the metrics page; None without an address, or if it cannot be read."""
    if metrics is None:
        return None
    try:
        return counters.totals(metrics)
    except ClientError as error:
        print(f"draft tokens are not counted: {error}", flush=True)
        return None


def _after(metrics: str | None, before: Mapping[str, float]) -> Mapping[str, float]:
    """The samples once the counters have grown and grow no more, or when the time is over."""
    deadline, last = time.monotonic() + _COUNTED_SECONDS, before
    while time.monotonic() < deadline:
        now = _read(metrics) or last
        totals, earlier = counters.speculation(now), counters.speculation(before)
        if totals == counters.speculation(last) and totals.drafted > earlier.drafted:
            break
        last = now
        time.sleep(_POLL)
    return last
