"""Verify speculative decoding of a served model: `python -m specdec.jobs.verify --plan JSON`.

The operator's verification Job runs this program. It sends the same prompts with speculation and
to the target alone, and compares the answers and the speed. All requests decode greedily, so equal
answers are expected. The operator judges the result.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specdec.api.reasons import VerificationReason
from specdec.client import metrics as counters
from specdec.client import tokenization
from specdec.client.connection import Connection
from specdec.client.dataset import Entry
from specdec.client.decoding_paths import DecodingPath, EngineModel
from specdec.client.divergence import Divergence
from specdec.client.errors import ClientError, RefusedError
from specdec.client.grpc_calls import Calls, Server
from specdec.client.infer import Inference, infer
from specdec.client.verification import Options, decoding_path, verify
from specdec.client.verification_result import Verification
from specdec.jobs import measurement_common, result, verify_counts
from specdec.jobs.measurement_common import MESSAGE_CHARACTERS
from specdec.jobs.result import JobError, progress
from specdec.servers.kind import ServerKind, kind
from specdec.servers.sampling import Sampling

FAILED = VerificationReason.VERIFICATION_FAILED
_CONCURRENCY = 4
# The speed is measured with this many prompts, one at a time, on both decoding paths.
_TIMED_PROMPTS = 8
Json = dict[str, Any]


@dataclass(frozen=True)
class VerificationPlan:
    """What to verify, and how.

    Attributes:
        plan_hash: returned with the result.
        kind: of the server.
        compares: answers with speculation are compared with those of the target alone. If no
            request can turn drafts off, draft tokens are only counted.
        client_loop: the client runs the draft/target loop.
        server, draft_server: `host:port` of the servers; the second one if the draft model has its
            own.
        metrics: `host:port` of the server's metrics, if its answers do not report draft tokens.
        draft_tokens: per round, if the client drafts.
        prompts: a file; None selects the built-in prompts.
        prompts_name: of the file, for messages.
        max_prompts, max_tokens: upper limits.
        tls: see `measurement_common.connection`; None for connections without TLS.
    """

    plan_hash: str
    kind: ServerKind
    compares: bool
    client_loop: bool
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
    def parse(cls, text: str) -> "VerificationPlan":
        """Parse the plan that `desired.measurement` writes."""
        plan: Json = json.loads(text)
        return cls(
            plan_hash=plan["planHash"],
            kind=kind(plan["kind"]),
            compares=plan["compares"],
            client_loop=plan.get("clientLoop", False),
            server=plan["server"],
            draft_server=plan.get("draftServer"),
            metrics=plan.get("metrics"),
            draft_tokens=plan["draftTokens"],
            prompts=Path(plan["prompts"]) if "prompts" in plan else None,
            prompts_name=plan.get("promptsName", ""),
            max_prompts=plan["maxPrompts"],
            max_tokens=plan["maxTokens"],
            tls=plan.get("tls"),
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if the service answered, even if outputs differ."""
    parser = argparse.ArgumentParser(description="Verify a served model")
    parser.add_argument("--plan", required=True, help="JSON: the server and the prompts")
    plan = VerificationPlan.parse(parser.parse_args(arguments).plan)
    return result.run(lambda: {"verification": asyncio.run(measured(plan))}, FAILED)


async def measured(plan: VerificationPlan) -> Json:
    """Run the verification and return the fields of `status.speculation`.

    Raises:
        JobError: ServerUnreachable, PromptsInvalid, SecretMissing or VerificationFailed.
    """
    entries = measurement_common.prompts(
        plan.prompts, plan.prompts_name, plan.max_prompts, "verification"
    )
    try:
        if plan.compares:
            measured = await _compare(plan, entries)
        elif plan.kind.counters.engine:
            measured = await _engine_steps(plan, entries)
        else:
            server = _connection(plan)
            measured = await verify_counts.counted(
                plan.kind, server, plan.metrics, entries, plan.max_tokens
            )
    except ClientError as error:
        raise measurement_common.job_error(error, FAILED) from error
    progress("verify", 100)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"planHash": plan.plan_hash, "measuredAt": now, **measured}


async def _compare(plan: VerificationPlan, entries: Sequence[Entry]) -> Json:
    """Compare speculative answers with those of the target alone, then measure both speeds."""
    server = _connection(plan)
    draft = (
        measurement_common.connection(plan.draft_server, plan.tls) if plan.draft_server else None
    )
    loop = plan.client_loop
    options = Options(
        model=plan.kind.requests.model,
        requests=plan.kind.requests,
        max_tokens=plan.max_tokens,
        draft_tokens=plan.draft_tokens if loop else None,
        client_loop=loop,
    )
    verification = await verify(
        entries,
        options,
        server,
        draft=draft,
        metrics=await _reachable(plan.metrics),
        concurrency=_CONCURRENCY,
    )
    progress("compare", 60)
    status = _status(verification)
    failed = {failure.prompt_index for failure in verification.failures}
    answered = [entry for index, entry in enumerate(entries) if index not in failed]
    async with Server(server) as target:
        speculative = decoding_path(options, target, server, draft)
        baseline = (
            EngineModel(target)
            if loop
            else decoding_path(replace(options, draft_tokens=0), target, server)
        )
        speed = await _speed(baseline, speculative, answered[:_TIMED_PROMPTS], plan.max_tokens)
    return {**status, "draftTokens": plan.draft_tokens, "speedupPercent": speed}


async def _reachable(metrics: str | None) -> str | None:
    """The address of the metrics if they can be read; the comparison also works without them."""
    if metrics is None:
        return None
    try:
        await asyncio.to_thread(counters.read, metrics)
    except ClientError as error:
        print(f"draft tokens are not counted: {error}", flush=True)
        return None
    return metrics


def _status(verification: Verification) -> Json:
    """The comparison in the fields of `status.speculation`.

    Raises:
        JobError: no prompt has an answer, or the server became unreachable.
    """
    for failure in verification.failures:
        if failure.kind == "unreachable":
            raise JobError(measurement_common.UNREACHABLE, failure.sentence, permanent=False)
    failures = verification.failures
    status: Json = {
        **verify_counts.outcomes(
            verification.prompts - len(failures),
            [failure.sentence for failure in failures],
            permanent=bool(failures) and failures[0].kind == "bad_request",
        ),
        "matched": verification.matched,
        "active": bool(verification.draft_tokens),
    }
    if verification.divergence is not None:
        status["divergence"] = _divergence(verification.divergence)
    return {**status, **verify_counts.compared(verification)}


def _divergence(first: Divergence) -> str:
    """The first difference between the answers, as a message."""
    prompt = f"prompt {first.prompt_index} ({first.prompt[:40]!r}) differs"
    if first.position is None:
        at = first.character or 0
        expected, got = first.expected[at : at + 40], first.got[at : at + 40]
        message = f"{prompt} at character {at}: expected {expected!r}, got {got!r}"
        return message[:MESSAGE_CHARACTERS]
    expected, got = first.expected_token_text[:40], first.got_token_text[:40]
    return (
        f"{prompt} at token {first.position}: expected {expected!r} ({first.expected_token}), "
        f"got {got!r} ({first.got_token})"
    )[:MESSAGE_CHARACTERS]


async def _speed(
    baseline: DecodingPath,
    speculative: DecodingPath,
    entries: Sequence[Entry],
    max_tokens: int,
) -> int:
    """The speed of `speculative` in percent of `baseline`: the median over prompts.

    The two paths take turns to go first, so that a change of the machine's load affects both
    equally.
    """
    ratios = []
    for number, entry in enumerate(entries):
        limit = entry.max_tokens or max_tokens
        seconds = {}
        for path in (baseline, speculative) if number % 2 else (speculative, baseline):
            started = time.perf_counter()
            await path.answer(entry.prompt, limit)
            seconds[path] = time.perf_counter() - started
        ratios.append(seconds[baseline] / seconds[speculative])
    return round(100 * statistics.median(ratios))


async def _engine_steps(plan: VerificationPlan, entries: Sequence[Entry]) -> Json:
    """Count tokens and steps of an engine that drafts itself and streams a response per step."""
    connection, engine = _connection(plan), plan.kind.counters.engine
    generated = steps = answered = 0
    failures: list[str] = []
    async with Server(connection) as server:
        config = await server.config(engine)
        streams = bool(config.model_transaction_policy.decoupled)
        for entry in entries:
            try:
                inference = await _inference(
                    server, entry, plan.max_tokens, engine, streams=streams
                )
                output = await infer(connection, inference)
            except RefusedError as error:
                failures.append(str(error))
                continue
            answered += 1
            # The context phase yields the first token, before the first draft.
            generated += max(0, len(output.tokens) - 1)
            steps += max(0, output.responses - 1)
    status = {**verify_counts.outcomes(answered, failures), "active": False}
    return {**status, **_rounds(generated, steps)} if streams else status


def _rounds(generated: int, steps: int) -> Mapping[str, Any]:
    if not steps:
        return {"rounds": 0}
    return {
        "rounds": steps,
        "tokensPerRound": f"{generated / steps:.2f}",
        "active": generated > steps,
    }


def _connection(plan: VerificationPlan) -> Connection:
    return measurement_common.connection(plan.server, plan.tls, plan.kind.requests.path)


async def _inference(
    server: Server, entry: Entry, max_tokens: int, engine: str, *, streams: bool
) -> Inference:
    async with Calls(server) as calls:
        prepared = await tokenization.prepare(calls, entry.prompt, Sampling())
    return Inference(
        ids=prepared.ids,
        model=engine,
        max_tokens=entry.max_tokens or max_tokens,
        stream=streams,
        end_id=prepared.end_id,
        pad_id=prepared.pad_id,
    )


if __name__ == "__main__":
    sys.exit(main())
