"""Put load on a served model: `python -m specdec.jobs.throughput --plan JSON`.

The Job of `specdec certify` runs this program beside the service. It sends the same prompts, with
greedy decoding, to every kind of service, at several numbers of concurrent clients. It returns the
answers as digests. Speed and answers of different resources can therefore be compared.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.api.reasons import BenchmarkReason
from specdec.client.decoding_paths import (
    ClientLoop,
    DecodingPath,
    EngineModel,
    TextModel,
    token_count,
)
from specdec.client.errors import ClientError, UnreachableError
from specdec.client.grpc_calls import Server
from specdec.jobs import measurement_common, result
from specdec.jobs.result import JobError, progress
from specdec.servers.kind import ServerKind, kind

FAILED = BenchmarkReason.BENCHMARK_FAILED
_DIGEST_CHARACTERS = 10
Json = dict[str, Any]


@dataclass(frozen=True)
class ThroughputPlan:
    """Which service to put load on, and how.

    Attributes:
        kind: of the server.
        client_loop: the client runs the draft/target loop.
        server, draft_server: `host:port` of gRPC endpoints; the second one for the client's loop.
        draft_tokens: per round of the client's loop.
        prompts: number of prompts.
        output_tokens: upper limit of each answer.
        concurrency: numbers of concurrent clients, one level each.
    """

    kind: ServerKind
    client_loop: bool
    server: str
    draft_server: str | None
    draft_tokens: int
    prompts: int
    output_tokens: int
    concurrency: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "ThroughputPlan":
        """Parse the plan that `certify.resources` writes."""
        plan: Json = json.loads(text)
        return cls(
            kind=kind(plan["kind"]),
            client_loop=plan.get("clientLoop", False),
            server=plan["server"],
            draft_server=plan.get("draftServer"),
            draft_tokens=plan["draftTokens"],
            prompts=plan["prompts"],
            output_tokens=plan["outputTokens"],
            concurrency=tuple(plan["concurrency"]),
        )


@dataclass
class _Level:
    """The results of the requests at one number of clients.

    Attributes:
        seconds: of each answered request.
        tokens: of all answers.
        failures: message of each rejected request.
        lost: why a connection failed; empty if none did.
    """

    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    failures: list[str] = field(default_factory=list)
    lost: str = ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if the service answered."""
    parser = argparse.ArgumentParser(description="Put load on a served model")
    parser.add_argument("--plan", required=True, help="JSON: the server and the load")
    plan = ThroughputPlan.parse(parser.parse_args(arguments).plan)
    return result.run(lambda: {"throughput": asyncio.run(measured(plan))}, FAILED)


async def measured(plan: ThroughputPlan) -> Json:
    """Run the load and return its result.

    Raises:
        JobError: ServerUnreachable or BenchmarkFailed.
    """
    entries = measurement_common.prompts(None, "", plan.prompts, "benchmark")
    prompts = [entry.prompt for entry in entries]
    target = measurement_common.connection(plan.server, None)
    try:
        async with Server(target) as server:
            path = _path(plan, server)
            await path.check()
            # This runs before any clock. It warms up the server, and counts the tokens of each
            # answer.
            tokens = await _token_counts(plan, path, server, prompts)
            answers = [await path.answer(prompt, plan.output_tokens) for prompt in prompts]
            progress("compare", 30)
            levels = []
            for number, clients in enumerate(plan.concurrency, 1):
                levels.append(await _load(path, prompts, tokens, plan.output_tokens, clients))
                progress("load", 30 + 70 * number // len(plan.concurrency))
    except ClientError as error:
        raise measurement_common.job_error(error, FAILED) from error
    return {
        "prompts": len(prompts),
        "tokens": sum(tokens),
        "answers": [_digest(answer.text) for answer in answers],
        "levels": levels,
    }


def _path(plan: ThroughputPlan, server: Server) -> DecodingPath:
    if not plan.client_loop:
        return TextModel(server, plan.kind.requests.model, requests=plan.kind.requests)
    draft = plan.draft_server and measurement_common.connection(plan.draft_server, None)
    target = measurement_common.connection(plan.server, None)
    return ClientLoop(server, target, draft or None, plan.draft_tokens)


async def _token_counts(
    plan: ThroughputPlan, path: DecodingPath, server: Server, prompts: Sequence[str]
) -> list[int]:
    """The number of tokens of each answer; the engine alone gives their ids."""
    if not plan.kind.counters.engine:
        return [await token_count(path, prompt, plan.output_tokens) for prompt in prompts]
    engine = EngineModel(server)
    answers = [await engine.answer(prompt, plan.output_tokens) for prompt in prompts]
    return [len(answer.ids or ()) for answer in answers]


async def _load(
    path: DecodingPath,
    prompts: Sequence[str],
    tokens: Sequence[int],
    output_tokens: int,
    clients: int,
) -> Json:
    """One level: each client sends its next prompt after its previous answer."""
    level = _Level()
    # There are at least two requests per client, so that all clients are busy most of the time.
    count = 2 * max(len(prompts), clients)
    pending = iter(range(count))
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(_client(path, prompts, tokens, output_tokens, pending, level))
    seconds = time.perf_counter() - started
    if level.lost:
        raise JobError(measurement_common.UNREACHABLE, level.lost, permanent=False)
    report: Json = {
        "concurrency": clients,
        "requests": count,
        "failed": len(level.failures),
        "seconds": round(seconds, 3),
        "tokensPerSecond": round(level.tokens / seconds, 1),
    }
    if level.failures:
        report["failure"] = level.failures[0][: measurement_common.MESSAGE_CHARACTERS]
    if level.seconds:
        report["latencyP50Ms"] = round(1000 * statistics.median(level.seconds), 1)
        report["latencyMaxMs"] = round(1000 * max(level.seconds), 1)
    return report


async def _client(
    path: DecodingPath,
    prompts: Sequence[str],
    tokens: Sequence[int],
    output_tokens: int,
    pending: Iterator[int],
    level: _Level,
) -> None:
    for index in pending:
        number = index % len(prompts)
        started = time.perf_counter()
        try:
            await path.answer(prompts[number], output_tokens)
        except UnreachableError as error:
            level.lost = str(error)
            return
        except ClientError as error:
            level.failures.append(str(error))
            continue
        level.seconds.append(time.perf_counter() - started)
        level.tokens += tokens[number]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


if __name__ == "__main__":
    sys.exit(main())
