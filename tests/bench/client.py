"""The accuracy of `specdec bench`, and the time that it needs itself.

`make bench NAME=client` prints one JSON line per figure and exits 1 if a goal is missed. It
compares the client's times with those of a server that stamps every chunk (`baseline/clock.py`),
over both protocols. The goals apply to HTTP, the default. It compares the request rate with that
of `hey`, a load generator in Go. Both post the same bodies in turns to the generate endpoint of
the same server. A further figure is the machine's load.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.baseline.cycle import build
from bench.baseline.load import BLS, LENGTH, repository, serving
from cluster import binaries
from specdec.client.connection import Connection
from specdec.client.load import Report as Answered
from specdec.client.load import Settings, measure
from specdec.client.load.exchange import Exchange, sample, undisturbed
from specdec.client.load.opened import Protocol, endpoint
from specdec.servers.chunk import Deltas
from specdec.servers.encoding import TensorCall
from support.bench_report import Report
from support.triton_server import Server as Triton

CLIENTS = 64
CHUNKS, CHUNK_SECONDS = 40, 0.05
AGREEING = (1, 4)
TURNS = 4
TOKENS = 32
PROMPT = "1:1 "
_CLOCK = [sys.executable, "-m", "bench.baseline.clock"]
# The folder from which `-m` imports the package `bench`.
_TESTS = Path(__file__).parents[1]


def clock(report: Report, runs: int, only: Sequence[Protocol] = ("http", "grpc")) -> None:
    """Print how far 64 clients' times differ from the server's, and processor time a chunk."""
    with stamping() as ports:
        for protocol in only:
            firsts, gaps, costs = [], [], []
            for _ in range(runs):
                exchanges, seconds = asyncio.run(load(f"127.0.0.1:{ports[protocol]}", protocol))
                first, between = zip(*map(errors, exchanges), strict=True)
                firsts.append(np.percentile(first, (50, 99)))
                gaps.append(np.percentile(np.concatenate(between), (50, 99)))
                costs.append(1e6 * seconds / (len(exchanges) * CHUNKS))
            judged = protocol == "http"
            for name, values, goal in (("first_token", firsts, 0.2), ("gap", gaps, 0.06)):
                middle, high = (list(column) for column in zip(*values, strict=True))
                full = f"client.{protocol}_{name}_error"
                report.figure(f"{full}_p50_ms", middle, "ms")
                report.figure(f"{full}_p99_ms", high, "ms")
                if judged:
                    late = [value / 1000 for value in high]
                    report.against_machine(f"{full}_p99", late, goal=goal)
            report.figure(f"client.{protocol}_cpu_us_per_chunk", costs, "us")
            if judged:
                each = [value / 1e6 for value in costs]
                report.against_machine(f"client.{protocol}_cpu_per_chunk", each, goal=0.008)
    report.figure("client.machine_load", [os.getloadavg()[0]], "processes")


@contextmanager
def stamping(
    chunks: int | None = None, seconds: float | None = None
) -> Iterator[dict[Protocol, int]]:
    """Yield the ports of a server that stamps its chunks and sends one every `seconds`."""
    command = [*_CLOCK, str(chunks or CHUNKS), str(seconds or CHUNK_SECONDS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_TESTS
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the stamping server has no pipes")
        grpc, http = map(int, process.stdout.readline().split())
        yield {"grpc": grpc, "http": http}
        process.stdin.close()


async def load(url: str, protocol: Protocol) -> tuple[list[Exchange], float]:
    """Return each client's exchange, and the processor time that this process used."""
    async with endpoint(Connection(url), protocol) as server:
        request = server.message(TensorCall(BLS, {}), streamed=True)
        clients = [server.client(streamed=True) for _ in range(CLIENTS)]

        async def ask(number: int) -> Exchange:
            # Real clients do not start at the same time. If they did here, all chunks would arrive
            # together, and each would wait for those before it.
            await asyncio.sleep(number * CHUNK_SECONDS / CLIENTS)
            return await clients[number].send(number, request)

        await asyncio.gather(*(client.send(0, request) for client in clients))
        with undisturbed():
            begun = time.process_time()
            exchanges = await asyncio.gather(*map(ask, range(CLIENTS)))
        for exchange in exchanges:
            if (error := sample(exchange, Deltas()).error) is not None:
                raise RuntimeError(f"a client failed: {error}")
        seconds = time.process_time() - begun
        for client in clients:
            await client.close()
    return exchanges, seconds


def errors(exchange: Exchange) -> tuple[float, list[float]]:
    """Return the milliseconds by which first-token time and gaps differ from the server's."""
    seen = sample(exchange, Deltas())
    stamps = [
        tuple(map(float, tensors["text_output"].item().split()))
        for _, tensors in exchange.responses()
    ]
    first = abs(seen.first - (stamps[0][1] - stamps[0][0]))
    truth = [after[1] - before[1] for before, after in pairwise(stamps)]
    return 1000 * first, [
        1000 * abs(gap - true) for gap, true in zip(seen.gaps, truth, strict=True)
    ]


def agreement(report: Report, runs: int, requests: int) -> None:
    """Print the ratio of our request rate to hey's, and the largest difference of all runs.

    The goal applies to one client only. Requests of several clients reach the engines in one batch
    or in two, so two runs of the same generator already differ by more than the goal.
    """
    binaries.ensure(["hey"], lambda message: print(message, file=sys.stderr))
    ratios: dict[tuple[int, int], list[float]] = defaultdict(list)
    themselves: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        pair = build(Path(folder), 0.8, 64, 2 * LENGTH)
        with serving(repository(pair, streaming=False)) as server:
            for _ in range(runs):
                # hey divides the requests evenly among its clients and drops the remainder.
                turn = max(1, requests // TURNS // max(AGREEING)) * max(AGREEING)
                seconds = in_turns(server, Path(folder), turn)
                for load, (mine, theirs, again) in seconds.items():
                    ratios[load].append(theirs / mine)
                    themselves.append(theirs / again)
    for (clients, length), values in ratios.items():
        name = f"client.rate_of_hey_clients_{clients}_draft_{length}"
        report.figure(name, values, "ratio", better="higher")
    report.figure("client.rate_of_hey_by_hey", themselves, "ratio", better="higher")
    alone = [abs(ratio - 1) for load, values in ratios.items() if load[0] == 1 for ratio in values]
    report.figure("client.rate_difference_from_hey_worst", [max(alone)], "ratio", goal=0.03)


def in_turns(
    server: Triton, folder: Path, requests: int
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return seconds by clients and draft length: ours, those of hey, and those of hey again.

    The turns are short, so that other load on the machine affects all three alike.
    """
    seconds: dict[tuple[int, int], NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
    for _ in range(TURNS):
        for level in ours(server, requests).levels:
            for arm in level.arms:
                load = level.concurrency, arm.draft_tokens or 0
                theirs = [hey(server, folder, *load, arm.requests) for _ in "ab"]
                rates = np.array([arm.request_throughput, *theirs])
                seconds[load] += arm.requests / rates
    return seconds


def ours(server: Triton, requests: int) -> Answered:
    """Return the result of `specdec bench` with and without draft tokens."""
    settings = Settings(
        prompts=[PROMPT],
        concurrency=AGREEING,
        requests=requests,
        output_tokens=TOKENS,
        draft_tokens=[LENGTH],
    )
    result = asyncio.run(measure(Connection(f"127.0.0.1:{server.http_port}"), settings))
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed: {result.levels}")
    return result


def hey(server: Triton, folder: Path, clients: int, length: int, requests: int) -> float:
    """Return the requests a second that hey measures with the same body."""
    body = folder / "body.json"
    values = {"text_input": PROMPT, "max_tokens": TOKENS, "end_id": -1, "stream": False}
    more = {"num_draft_tokens": length, "exclude_input_in_output": True, "random_seed": 0}
    body.write_text(json.dumps({**values, **more, "return_perf_metrics": True}), "utf-8")
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{BLS}/generate"
    command = [str(binaries.path("hey")), "-n", str(requests), "-c", str(clients), "-m", "POST"]
    command += ["-T", "application/json", "-D", str(body), "-o", "csv", "-t", "120", url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    if len(rows) != requests or {row["status-code"] for row in rows} != {"200"}:
        raise RuntimeError(f"hey was not answered: {done.stdout[-500:]} {done.stderr}")
    return requests / max(float(row["offset"]) + float(row["response-time"]) for row in rows)


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark the benchmark")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    options = parser.parse_args()
    report = Report()
    clock(report, options.runs)
    agreement(report, options.runs, options.requests)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
