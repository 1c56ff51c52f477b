"""Count draft tokens for the verification Job.

`counted` asks a server whose engine drafts by itself. Such a server takes and returns text, and
reports draft tokens with each answer. No request can turn drafting off there, so there is no
answer of the target alone to compare with. `compared` is for a verification that compared answers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import Client, Request
from specdec.client.answer import Answer
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import RefusedError
from specdec.client.metrics import SourceTotals
from specdec.client.verification_result import Verification
from specdec.jobs.result import JobError
from specdec.triton.model_names import TARGET

_MESSAGE_CHARACTERS = 300


async def counted(
    connection: Connection, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    greedy = {"model": TARGET, "top_k": 1}
    responses, status = await asyncio.to_thread(answers, connection, entries, max_tokens, greedy)
    counts = [answer.counts for answer in responses if answer.counts is not None]
    drafted = sum(count.drafted for count in counts)
    return {**status, **drafts(drafted, sum(count.accepted for count in counts))}


def answers(
    connection: Connection,
    entries: Sequence[Entry],
    max_tokens: int,
    options: Mapping[str, Any],
) -> tuple[list[Answer], dict[str, Any]]:
    """The answers to all prompts, and the fields of `status.speculation` that count them.

    Args:
        connection: to the server.
        entries: the prompts.
        max_tokens: for prompts that have no limit of their own.
        options: further fields of each `Request`.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    answered: list[Answer] = []
    failures: list[str] = []
    with Client(connection) as client:
        for entry in entries:
            length = entry.max_tokens or max_tokens
            request = Request(entry.prompt, max_tokens=length, stream=False, **options)
            try:
                answered.append(client.ask(request))
            except RefusedError as error:
                failures.append(str(error))
    if not answered:
        raise JobError(
            VerificationReason.VERIFICATION_FAILED,
            f"no prompt has an answer: {failures[0]}",
            permanent=False,
        )
    failure = {"failure": failures[0][:_MESSAGE_CHARACTERS]} if failures else {}
    return answered, {"prompts": len(answered), "failed": len(failures), **failure}


def drafts(drafted: int, accepted: int) -> dict[str, Any]:
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


def _tokens(drafted: int, accepted: int) -> dict[str, int]:
    percent = {"acceptancePercent": round(100 * accepted / drafted)} if drafted else {}
    return {"draftedTokens": drafted, "acceptedTokens": accepted, **percent}
