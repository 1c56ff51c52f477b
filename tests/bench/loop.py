"""The cost of a round of the client's own draft/target loop, with engines that answer at once.

`make bench NAME=loop` prints one JSON line a figure and exits 1 when a goal is missed. One server
in its own process is both engines (`baseline/instant.py`). A round therefore takes only the time
of the client, gRPC and the loopback. Every draft token is right.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.client.connection import Connection
from specdec.client.speculate import Options, speculate
from support.bench_report import Report

CLIENTS = 16
LENGTH = 4
# Enough rounds that the fixed cost of an answer adds little to each of them.
ROUNDS = 300
_SERVER = [sys.executable, "-m", "bench.baseline.instant"]
# The folder from which `-m` imports the package `bench`.
_TESTS = Path(__file__).parents[1]


def rounds(report: Report, runs: int) -> None:
    """Print milliseconds a round of one client, and rounds a second of sixteen in one process."""
    alone, together, costs = [], [], []
    with serving() as url:
        where = Connection(url)
        asyncio.run(loop(where, CLIENTS))
        for _ in range(runs):
            alone.append(1000 / asyncio.run(loop(where, 1)))
            begun = time.process_time()
            together.append(asyncio.run(loop(where, CLIENTS)))
            costs.append(1e6 * (time.process_time() - begun) / (CLIENTS * ROUNDS))
    report.figure("loop.round_clients_1_ms", alone, "ms")
    report.against_machine("loop.round_clients_1", [value / 1000 for value in alone], goal=0.15)
    many = f"loop.rounds_clients_{CLIENTS}"
    report.figure(f"{many}_per_s", together, "rounds/s", better="higher")
    report.against_machine(many, [1 / rate for rate in together], goal=0.364)
    report.figure("loop.cpu_us_per_round", costs, "us")
    report.figure("loop.machine_load", [os.getloadavg()[0]], "processes")


@contextmanager
def serving() -> Iterator[str]:
    """Yield the address of a server of both engines."""
    with subprocess.Popen(
        _SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_TESTS
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no pipes")
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


async def loop(where: Connection, clients: int) -> float:
    """Return the rounds a second of all clients, from the first prompt to the last answer."""
    options = Options(max_tokens=ROUNDS * (LENGTH + 1), draft_tokens=LENGTH)
    begun = time.perf_counter()
    results = await speculate(["a"] * clients, options, where, concurrency=clients)
    seconds = time.perf_counter() - begun
    for result in results:
        if result.error is not None or len(result.steps) != ROUNDS:
            raise RuntimeError(f"{len(result.steps)} rounds instead of {ROUNDS}: {result.error}")
    return clients * ROUNDS / seconds


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark the client's loop")
    parser.add_argument("--runs", type=int, default=9)
    report = Report()
    rounds(report, parser.parse_args().runs)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
