"""Count the draft tokens of a server whose engine drafts by itself, for the verification Job.

Its front end takes and gives text, and reports draft tokens with each answer. No request turns
drafts off, so there is no answer of the target alone to compare with.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import Client, Request
from specdec.client.answer import Counts
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.errors import RefusedError
from specdec.client.model_names import TARGET
from specdec.jobs.result import JobError

_MESSAGE_CHARACTERS = 300


async def counted(
    connection: Connection, entries: Sequence[Entry], max_tokens: int
) -> dict[str, Any]:
    """The fields of `status.speculation` that such a server can show.

    Raises:
        JobError: no prompt has an answer.
        UnreachableError: the connection failed.
    """
    counts, failures = await asyncio.to_thread(_answers, connection, entries, max_tokens)
    if not counts:
        raise JobError(
            VerificationReason.VERIFICATION_FAILED,
            f"no prompt has an answer: {failures[0]}",
            permanent=False,
        )
    drafted = sum(count.drafted for count in counts)
    accepted = sum(count.accepted for count in counts)
    status: dict[str, Any] = {
        "prompts": len(counts),
        "failed": len(failures),
        "active": drafted > 0,
        "draftedTokens": drafted,
        "acceptedTokens": accepted,
    }
    if drafted:
        status["acceptancePercent"] = round(100 * accepted / drafted)
    if failures:
        status["failure"] = failures[0][:_MESSAGE_CHARACTERS]
    return status


def _answers(
    connection: Connection, entries: Sequence[Entry], max_tokens: int
) -> tuple[list[Counts], list[str]]:
    """The counts of each greedy answer, and the sentences of those that were refused."""
    counts: list[Counts] = []
    failures: list[str] = []
    with Client(connection) as client:
        for entry in entries:
            length = entry.max_tokens or max_tokens
            request = Request(entry.prompt, model=TARGET, max_tokens=length, top_k=1, stream=False)
            try:
                counts.append(client.ask(request).counts or Counts(0, 0))
            except RefusedError as error:
                failures.append(str(error))
    return counts, failures
