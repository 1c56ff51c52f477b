"""Count the draft tokens of a server with the OpenAI API, for the verification Job.

Its answers have no counts: they come from the server's metrics, before and after the requests. The
requests of other clients in that time count too.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import metrics as counters
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import ClientError, RefusedError
from specdec.client.generate import Client
from specdec.client.request import Request
from specdec.jobs.result import JobError

_PATH = "/v1"
_MESSAGE_CHARACTERS = 300
# Some releases count at the end of a request, others when they next report on their iterations.
_COUNTED_SECONDS = 10.0
_POLL = 0.5


async def counted(
    connection: Connection, metrics: str | None, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Args:
        connection: of the server; its path is added.
        metrics: `host:port` of the server's metrics; None if several servers answer there.
        entries: the prompts.
        max_tokens: limit of a prompt without its own.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    return await asyncio.to_thread(_counted, connection, metrics, entries, max_tokens)


def _counted(
    connection: Connection, metrics: str | None, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    before = _read(metrics)
    failures: list[str] = []
    with Client(replace(connection, path=_PATH)) as client:
        for entry in entries:
            limit = entry.max_tokens or max_tokens
            request = Request(
                entry.prompt, model="", max_tokens=limit, temperature=0.0, stream=False
            )
            try:
                client.ask(request)
            except RefusedError as error:
                failures.append(str(error))
    answered = len(entries) - len(failures)
    if not answered:
        raise JobError(
            VerificationReason.VERIFICATION_FAILED,
            f"no prompt has an answer: {failures[0]}",
            permanent=False,
        )
    status: dict[str, Any] = {"prompts": answered, "failed": len(failures), "active": False}
    if failures:
        status["failure"] = failures[0][:_MESSAGE_CHARACTERS]
    return {**status, **({} if before is None else _counts(before, _after(metrics, before)))}


def _counts(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """The counts of draft tokens; empty if the server counts none, or restarted in between."""
    difference = counters.speculation(after) - counters.speculation(before)
    drafted, accepted = difference.drafted, difference.accepted
    if not counters.counts_drafts(after) or drafted < 0 or accepted < 0:
        return {}
    counts = {"active": drafted > 0, "draftedTokens": drafted, "acceptedTokens": accepted}
    return {
        **counts,
        **({"acceptancePercent": round(100 * accepted / drafted)} if drafted else {}),
    }


def _read(metrics: str | None) -> Mapping[str, float] | None:
    """All samples of the page; None without one."""
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
        totals, grown = counters.speculation(now), counters.speculation(before)
        if totals == counters.speculation(last) and totals.drafted > grown.drafted:
            break
        last = now
        time.sleep(_POLL)
    return last
