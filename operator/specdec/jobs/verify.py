"""Verify what serves: `python -m specdec.jobs.verify --plan JSON`.

Asks the Service as any client would, with speculation and of the target alone, and leaves what it
saw; the operator judges it. Nothing but greedy answers is asked for, so that they can be compared.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import metrics as counters
from specdec.client import tokenization
from specdec.client.dataset import Entry
from specdec.client.decoding_paths import ClientLoop, DecodingPath, EngineModel, TextModel
from specdec.client.errors import ClientError, RefusedError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.infer import Inference, infer
from specdec.client.model_names import BLS
from specdec.client.sampling import Sampling
from specdec.client.verification import Options, verify
from specdec.client.verification_result import Verification
from specdec.jobs import measurement_common, result
from specdec.jobs.result import JobError, progress

FAILED = VerificationReason.VERIFICATION_FAILED
_ENGINE = "tensorrt_llm"
_CONCURRENCY = 4
# So many prompts are timed, one at a time; each is asked both ways, in turns.
_TIMED = 8
_CHARACTERS = 300
Json = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What the operator wants verified.

    Attributes:
        plan_hash: comes back with the result.
        way: `Bls` and `Loop` (of the client) are compared with the target alone; of `Engine`,
            which drafts by itself, only the tokens of a step are seen.
        server, draft_server: `host:port` of gRPC endpoints; the draft's is for a loop over two.
        metrics: `host:port` of the server's counters, where its answers do not tell drafts.
        draft_tokens: of a round, where the client drafts.
        prompts: a file, None for those that ship with the operator; `prompts_name` is for people.
        max_prompts, max_tokens: at most.
        tls: how servers are spoken to, as `asking.connection` takes it; None is in the clear.
    """

    plan_hash: str
    way: str
    server: str
    draft_server: str | None
    metrics: str | None
    draft_tokens: int
    prompts: Path | None
    prompts_name: str
    max_prompts: int
    max_tokens: int
    tls: Mapping[str, str] | None = None

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """The plan as `desired.measurement` writes it."""
        given: Json = json.loads(text)
        return cls(
            plan_hash=given["planHash"],
            way=given["way"],
            server=given["server"],
            draft_server=given.get("draftServer"),
            metrics=given.get("metrics"),
            draft_tokens=given["draftTokens"],
            prompts=Path(given["prompts"]) if "prompts" in given else None,
            prompts_name=given.get("promptsName", ""),
            max_prompts=given["maxPrompts"],
            max_tokens=given["maxTokens"],
            tls=given.get("tls"),
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the service was asked, whatever it answered."""
    parser = argparse.ArgumentParser(description="Verify a served model")
    parser.add_argument("--plan", required=True, help="JSON: what serves, and how to ask it")
    plan = Plan.parse(parser.parse_args(arguments).plan)
    return result.run(lambda: {"verification": asyncio.run(measured(plan))}, FAILED)


async def measured(plan: Plan) -> Json:
    """What the service shows, in the fields of `status.speculation`.

    Raises:
        JobError: ServerUnreachable, PromptsInvalid, SecretMissing or VerificationFailed.
    """
    entries = measurement_common.prompts(
        plan.prompts, plan.prompts_name, plan.max_prompts, "verification"
    )
    try:
        found = await (_steps(plan, entries) if plan.way == "Engine" else _compared(plan, entries))
    except ClientError as error:
        raise measurement_common.job_error(error, FAILED) from error
    progress("verify", 100)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"planHash": plan.plan_hash, "measuredAt": now, **found}


async def _compared(plan: Plan, entries: Sequence[Entry]) -> Json:
    """Answers with drafts against those of the target alone, then how long both take."""
    server = measurement_common.connection(plan.server, plan.tls)
    draft = (
        measurement_common.connection(plan.draft_server, plan.tls) if plan.draft_server else None
    )
    loop = plan.way == "Loop"
    options = Options(
        max_tokens=plan.max_tokens,
        draft_tokens=plan.draft_tokens if loop else None,
        client_loop=loop,
    )
    found = await verify(
        entries,
        options,
        server,
        draft=draft,
        metrics=await _readable(plan.metrics),
        concurrency=_CONCURRENCY,
    )
    progress("compare", 60)
    told = _told(found)
    failed = {failure.prompt_index for failure in found.failures}
    answered = [entry for index, entry in enumerate(entries) if index not in failed]
    async with Server(server) as target:
        fast: DecodingPath = TextModel(target, BLS, None)
        plain: DecodingPath = TextModel(target, BLS, 0)
        if loop:
            fast = ClientLoop(target, server, draft, plan.draft_tokens)
            plain = EngineModel(target)
        speed = await _speed(plain, fast, answered[:_TIMED], plan.max_tokens)
    return {**told, "draftTokens": plan.draft_tokens, "speedupPercent": speed}


async def _readable(metrics: str | None) -> str | None:
    """The address if somebody answers there: without counters the answers are compared alike."""
    if metrics is None:
        return None
    try:
        await asyncio.to_thread(counters.read, metrics)
    except ClientError as error:
        print(f"drafts are not counted: {error}", flush=True)
        return None
    return metrics


def _told(found: Verification) -> Json:
    """A comparison as the status keeps it.

    Raises:
        JobError: not one prompt has an answer, or the server went away.
    """
    for failure in found.failures:
        if failure.kind == "unreachable":
            raise JobError(measurement_common.UNREACHABLE, failure.sentence, permanent=False)
    answered = found.prompts - len(found.failures)
    if not answered:
        first = found.failures[0]
        bad = first.kind == "bad_request"
        raise JobError(FAILED, f"no prompt has an answer: {first.sentence}", permanent=bad)
    told: Json = {
        "prompts": answered,
        "matched": found.matched,
        "failed": len(found.failures),
        "active": bool(found.draft_tokens),
    }
    if found.draft_tokens is not None:
        told["draftedTokens"] = found.draft_tokens
        told["acceptedTokens"] = found.accepted_tokens or 0
    if found.failures:
        told["failure"] = found.failures[0].sentence[:_CHARACTERS]
    if found.divergence is not None:
        told["divergence"] = _where(found)
    if found.acceptance_percent is not None:
        told["acceptancePercent"] = round(found.acceptance_percent)
    if found.rounds is not None:
        told["rounds"] = found.rounds
    if found.tokens_per_round is not None:
        told["tokensPerRound"] = f"{found.tokens_per_round:.2f}"
    return told


def _where(found: Verification) -> str:
    one = found.divergence
    if one is None:
        return ""
    place = f"prompt {one.prompt_index} ({one.prompt[:40]!r}) differs"
    if one.position is None:
        at = one.character or 0
        expected, got = one.expected[at : at + 40], one.got[at : at + 40]
        return f"{place} at character {at}: expected {expected!r}, got {got!r}"[:_CHARACTERS]
    expected, got = one.expected_token_text[:40], one.got_token_text[:40]
    return (
        f"{place} at token {one.position}: expected {expected!r} ({one.expected_token}), "
        f"got {got!r} ({one.got_token})"
    )[:_CHARACTERS]


async def _speed(
    plain: DecodingPath, fast: DecodingPath, entries: Sequence[Entry], max_tokens: int
) -> int:
    """Speed of `fast` in percent of that of `plain`: the median over prompts.

    Both are asked one after the other, each of them first in turn, so that a drift of the machine
    meets both.
    """
    ratios = []
    for number, entry in enumerate(entries):
        limit = entry.max_tokens or max_tokens
        seconds = {}
        for arm in (plain, fast) if number % 2 else (fast, plain):
            begun = time.perf_counter()
            await arm.answer(entry.prompt, limit)
            seconds[arm] = time.perf_counter() - begun
        ratios.append(seconds[plain] / seconds[fast])
    return round(100 * statistics.median(ratios))


async def _steps(plan: Plan, entries: Sequence[Entry]) -> Json:
    """Tokens and steps of an engine that drafts by itself: its stream has a response a step."""
    connection = measurement_common.connection(plan.server, plan.tls)
    grown = steps = answered = 0
    failures: list[str] = []
    async with Server(connection) as server:
        config = await server.config(_ENGINE)
        streams = bool(config.model_transaction_policy.decoupled)
        for entry in entries:
            try:
                inference = await _inference(server, entry, plan.max_tokens, streams=streams)
                output = await infer(connection, inference)
            except RefusedError as error:
                failures.append(str(error))
                continue
            answered += 1
            # The first token comes of the prompt, before anything could be drafted.
            grown += max(0, len(output.tokens) - 1)
            steps += max(0, output.responses - 1)
    if not answered:
        raise JobError(FAILED, f"no prompt has an answer: {failures[0]}", permanent=False)
    told: Json = {"prompts": answered, "failed": len(failures), "active": False}
    if failures:
        told["failure"] = failures[0][:_CHARACTERS]
    return {**told, **_stepped(grown, steps)} if streams else told


def _stepped(grown: int, steps: int) -> Mapping[str, Any]:
    if not steps:
        return {"rounds": 0}
    return {"rounds": steps, "tokensPerRound": f"{grown / steps:.2f}", "active": grown > steps}


async def _inference(server: Server, entry: Entry, max_tokens: int, *, streams: bool) -> Inference:
    async with Calls(server) as calls:
        prepared = await tokenization.prepare(calls, entry.prompt, Sampling())
    return Inference(
        ids=prepared.ids,
        max_tokens=entry.max_tokens or max_tokens,
        stream=streams,
        end_id=prepared.end_id,
        pad_id=prepared.pad_id,
    )


if __name__ == "__main__":
    sys.exit(main())
