"""Count draft tokens for the verification Job.

`counted` asks a server whose engine drafts by itself. No request can turn drafting off there, so
there is no answer of the target alone to compare with. The counts come from the answers, or else
from the server's metrics before and after the requests, to which other clients add.
`compared` is for a verification that compared answers.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import Client, Request, metrics
from specdec.client.answer import Answer
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import ClientError, RefusedError
from specdec.client.verification_result import Verification
from specdec.jobs.measurement_common import MESSAGE_CHARACTERS
from specdec.jobs.result import JobError
from specdec.servers.chunk import Counts
from specdec.servers.counting import Counters
from specdec.servers.kind import ServerKind
from specdec.servers.totals import SourceTotals

_POLL = 0.5


async def counted(
    kind: ServerKind,
    connection: Connection,
    metrics_url: str | None,
    entries: Sequence[Entry],
    max_tokens: int,
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Args:
        kind: of the server.
        connection: to the server.
        metrics_url: `host:port` of its metrics; None if several servers answer there.
        entries: the prompts.
        max_tokens: for prompts that have no limit of their own.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    return await asyncio.to_thread(_counted, kind, connection, metrics_url, entries, max_tokens)


def _counted(
    kind: ServerKind,
    connection: Connection,
    metrics_url: str | None,
    entries: Sequence[Entry],
    max_tokens: int,
) -> dict[str, Any]:
    counters = kind.counters
    if not counters.metrics:
        metrics_url = None
    before = _samples(metrics_url)
    answers, status = _answers(kind, connection, entries, max_tokens)
    status = {**status, "active": False}
    if counts := [answer.counts for answer in answers if answer.counts is not None]:
        drafted, accepted = (sum(each) for each in zip(*map(_pair, counts), strict=True))
        return {**status, **_drafts(drafted, accepted)}
    if before is None:
        return status
    after = _after(counters, metrics_url, before)
    difference = counters.speculation(after) - counters.speculation(before)
    # A server that restarted in between has counted less.
    if not counters.counts(after) or difference.drafted < 0 or difference.accepted < 0:
        return status
    return {**status, **_drafts(difference.drafted, difference.accepted)}


def _answers(
    kind: ServerKind, connection: Connection, entries: Sequence[Entry], max_tokens: int
) -> tuple[list[Answer], dict[str, Any]]:
    """The answers to all prompts, and the fields of `status.speculation` that count them."""
    requests = kind.requests
    answered: list[Answer] = []
    failures: list[str] = []
    with Client(connection, requests=requests) as client:
        for entry in entries:
            request = Request(
                entry.prompt,
                model=requests.model,
                max_tokens=entry.max_tokens or max_tokens,
                stream=False,
                **requests.greedy,
            )
            try:
                answered.append(client.ask(request))
            except RefusedError as error:
                failures.append(str(error))
    return answered, outcomes(len(answered), failures)


def outcomes(answered: int, failures: Sequence[str], *, permanent: bool = False) -> dict[str, Any]:
    """The fields of `status.speculation` that count the answers, with the first failure.

    Raises:
        JobError: no prompt has an answer; `permanent` if another attempt cannot help.
    """
    if not answered:
        message = f"no prompt has an answer: {failures[0]}"
        raise JobError(VerificationReason.VERIFICATION_FAILED, message, permanent=permanent)
    failure = {"failure": failures[0][:MESSAGE_CHARACTERS]} if failures else {}
    return {"prompts": answered, "failed": len(failures), **failure}


def _samples(url: str | None) -> Mapping[str, float] | None:
    """All samples of the metrics page; None without an address, or if it cannot be read."""
    if url is None:
        return None
    try:
        return metrics.totals(url)
    except ClientError as error:
        print(f"draft tokens are not counted: {error}", flush=True)
        return None


def _after(
    counters: Counters, url: str | None, before: Mapping[str, float]
) -> Mapping[str, float]:
    """The samples once the counters have grown and grow no more, or when the time is over."""
    deadline, last = time.monotonic() + counters.settles_seconds, before
    earlier = counters.speculation(before)
    while True:
        now = _samples(url) or last
        totals = counters.speculation(now)
        is_settled = totals == counters.speculation(last) and totals.drafted > earlier.drafted
        last = now
        if is_settled or time.monotonic() >= deadline:
            return last
        time.sleep(_POLL)


def _drafts(drafted: int, accepted: int) -> dict[str, Any]:
    """The fields of `status.speculation` for numbers of draft tokens."""
    return {"active": drafted > 0, **_tokens(drafted, accepted)}


def compared(verification: Verification) -> dict[str, Any]:
    """The fields of `status.speculation` for the draft tokens and rounds that are known."""
    counts: dict[str, Any] = {}
    if verification.draft_tokens is not None:
        counts["draftedTokens"] = verification.draft_tokens
        counts["acceptedTokens"] = verification.accepted_tokens or 0
    if verification.sources:
        counts["sources"] = by_source(verification.sources)
    if verification.acceptance_percent is not None:
        counts["acceptancePercent"] = round(verification.acceptance_percent)
    if verification.rounds is not None:
        counts["rounds"] = verification.rounds
    if verification.tokens_per_round is not None:
        counts["tokensPerRound"] = f"{verification.tokens_per_round:.2f}"
    return counts


def by_source(sources: Sequence[SourceTotals]) -> list[dict[str, Any]]:
    """The field `sources` of `status.speculation`."""
    return [
        {"name": source.name, **_tokens(source.drafted, source.accepted)} for source in sources
    ]


def _pair(counts: Counts) -> tuple[int, int]:
    return counts.drafted, counts.accepted


def _tokens(drafted: int, accepted: int) -> dict[str, int]:
    percent = {"acceptancePercent": round(100 * accepted / drafted)} if drafted else {}
    return {"draftedTokens": drafted, "acceptedTokens": accepted, **percent}
