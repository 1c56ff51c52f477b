"""The speed of the BLS as a share of its engines' bound, compared with a sequential loop.

`make bench NAME=bls` prints one JSON line a figure and exits 1 when a goal is missed. First it
measures calls of many rows and of one row, with simulated engines that compute nothing
(`baseline/waiting.py`). The other figures use engines of the Reference backend with simulated step
times (`baseline/cycle.py`). The cost of the loops themselves is measured with engines that answer
at once. Most goals are ratios of two measurements of one run. Further figures show the shares of
processor time that were in use and that the machine's host took away.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.baseline import modes, waiting
from bench.baseline.cycle import Pair, build
from bench.baseline.load import (
    BLS,
    CLIENTS,
    LENGTH,
    Load,
    at_once,
    drive,
    repository,
    serving,
    steadily,
)
from bench.baseline.traces import resident, traces
from cluster.processes import until
from support import bls
from support.bench_report import Report
from support.triton_client import ask, ask_once
from support.triton_server import Server

ACCEPTANCE = 0.8
_LOOP = "sequential_1"
# Seconds of a measurement of many clients.
SECONDS = 5.0


class Sides:
    """The BLS and the sequential loop, each on its own server, and the load on the processors."""

    def __init__(self, ours: Server, theirs: Server, report: Report) -> None:
        self._ours = ours
        self._theirs = theirs
        self._report = report
        self.used: list[float] = []
        self.stolen: list[float] = []

    def bls(self, clients: int, tokens: int) -> Load:
        """Measure clients of the BLS that send one request each."""
        return self._noted(drive(self._ours, BLS, clients, tokens, streaming=True))

    def busy_bls(self, tokens: int) -> Load:
        """Measure sixteen clients that send requests to the BLS all the time."""
        load = steadily(self._ours, BLS, CLIENTS, tokens, SECONDS, streaming=True)
        return self._noted(load)

    def loop(self, clients: int, tokens: int) -> Load:
        """Measure clients of a sequential loop in one process that send one request each."""
        return self._noted(drive(self._theirs, _LOOP, clients, tokens, streaming=False))

    def busy_loop(self, tokens: int) -> Load:
        """Measure sixteen clients that use sixteen processes of the loop all the time."""
        model = f"sequential_{CLIENTS}"
        return self._noted(
            steadily(self._theirs, model, CLIENTS, tokens, SECONDS, streaming=False)
        )

    def machine(self, name: str) -> None:
        """Report the shares of processor time in use, and taken by the machine's host."""
        self._report.figure(f"bls.{name}_processors_busy", self.used, "ratio")
        self._report.figure(f"bls.{name}_processors_stolen", self.stolen, "ratio")

    def _noted(self, load: Load) -> Load:
        self.used.append(load.busy)
        self.stolen.append(load.stolen)
        return load


def simulated(report: Report, sides: Sides, runs: int, tokens: int) -> None:
    """Print the shares of the bound that the BLS and the loop reach at 20 ms and 2 ms a step."""
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        one, many = sides.bls(1, tokens), sides.busy_bls(tokens)
        figures["one_client"].append(one.of_bound(1))
        figures["sixteen_clients"].append(many.of_bound(CLIENTS))
        # Answers that start together do not end together: in the end fewer are in flight.
        figures["sixteen_answers"].append(sides.bls(CLIENTS, tokens).of_bound(CLIENTS))
        bound = one.speed / one.of_bound(1)
        figures["loop_one_client"].append(sides.loop(1, tokens).speed / bound)
        # This bound is that of many prompts, because acceptance differs between prompts.
        bound = many.speed / many.of_bound(CLIENTS)
        shared = sides.loop(CLIENTS, tokens // 8).speed
        figures["loop_sixteen_clients_one_process"].append(shared / bound)
        figures["loop_sixteen_clients_sixteen_processes"].append(
            sides.busy_loop(tokens).speed / bound
        )
    goals = {"one_client": 0.95, "sixteen_clients": 0.85}
    for name, values in figures.items():
        report.figure(
            f"bls.{name}_of_bound", values, "ratio", goal=goals.get(name), better="higher"
        )
    sides.machine("simulated")


def instant(report: Report, server: Server, runs: int, tokens: int) -> None:
    """Print the cost of the loops themselves, with engines that answer at once."""
    ratios, many, limits, rounds = [], [], [], []
    for _ in range(runs):
        one = drive(server, BLS, 1, 4 * tokens, streaming=False)
        empty = ask_once(server.url, _LOOP, text_input="-", max_tokens=-1, num_draft_tokens=1)
        limits.append(1000 * float(empty["text_output"].item()))
        rounds.append(1000 * one.seconds / one.rounds)
        ours = drive(server, BLS, CLIENTS, 2 * tokens, streaming=False)
        many.append(ours.speed)
        ratios.append(ours.speed / drive(server, _LOOP, CLIENTS, tokens, streaming=False).speed)
    report.figure("bls.instant_empty_round_ms", limits, "ms")
    # The lower bound of a round is the empty round: two calls of an empty model.
    report.figure("bls.instant_round_ms", rounds, "ms")
    report.figure(
        "bls.instant_round_of_empty",
        [ours / empty for ours, empty in zip(rounds, limits, strict=True)],
        "ratio",
        goal=1.4,
    )
    report.figure("bls.instant_sixteen_clients", many, "tokens/s", better="higher")
    report.figure("bls.instant_of_loop", ratios, "ratio", goal=4.0, better="higher")


def memory(report: Report, pair: Pair) -> None:
    """Print the memory that the BLS and 64 requests in flight add to a server without a BLS."""
    files = repository(pair, streaming=True)
    engines = {path: text for path, text in files.items() if path.split("/")[0] != BLS}
    with serving(engines) as server:
        idle = resident(server)
    key = f"{BLS}/config.pbtxt"
    files[key] = re.sub(r'(max_in_flight"\s*value \{ string_value: )"\d+"', r'\1"64"', files[key])
    with serving(files) as server, ThreadPoolExecutor(64) as pool:
        answers = [
            pool.submit(ask, server.url, BLS, text_input=f"{n} ", max_tokens=96, end_id=-1)
            for n in range(64)
        ]
        until(
            lambda: server.metric("specdec_requests_in_flight") >= 64,
            lambda: "64 requests never were in flight",
        )
        report.figure("bls.resident_mb_at_64", [(resident(server) - idle) / 1e6], "MB", goal=120.0)
        for answer in answers:
            answer.result()


def adaptive(report: Report) -> None:
    """Print the worst cases of the adaptive policy under simulated loads."""
    figures = bls.adaptive()
    for name, values in (
        ("least_of_best_fixed", figures["of_best"]),
        ("least_of_plain", figures["of_plain"]),
        ("least_20_rounds_after_other_load", figures["after_load_steps"]),
        ("least_5_s_after_other_text", figures["after_other_texts"]),
    ):
        figure = f"bls.adaptive_{name}"
        report.figure(figure, [min(values)], "ratio", goal=0.97, better="higher")
    changes = max(figures["changes_a_second"])
    report.figure(
        "bls.adaptive_most_changes_a_second", [changes], "changes a simulated second", goal=1.0
    )


@dataclass(frozen=True)
class Bench:
    """The settings of the bench, and a method for each of its parts.

    Args:
        folder: directory of the checkpoints.
        tokens: tokens of an answer.
    """

    report: Report
    pair: Pair
    folder: Path
    runs: int
    tokens: int

    def rows(self) -> None:
        """Measure calls of many rows and of one row."""
        for rows in (CLIENTS, 1):
            given = (self.report, self.pair, rows, self.runs, self.tokens, SECONDS)
            waiting.shared_steps(*given)
            waiting.own_speed(*given)

    def adaptive(self) -> None:
        """Measure the adaptive draft length, simulated without a clock."""
        adaptive(self.report)

    def simulated(self) -> None:
        """Measure the BLS and the loop with engines that take time for each step."""
        with (
            serving(repository(self.pair, streaming=True)) as ours,
            serving(repository(self.pair, streaming=False, loops=(1, CLIENTS))) as theirs,
        ):
            simulated(self.report, Sides(ours, theirs, self.report), self.runs, self.tokens)
            modes.chunks(self.report, ours, self.runs, self.tokens)

    def traces(self) -> None:
        """Measure the memory that many requests leave behind."""
        files = repository(self.pair, streaming=True, target_ms=1, draft_ms=0.1)
        with serving(files) as server:
            traces(self.report, server)

    def instant(self) -> None:
        """Measure the loops with engines that answer at once."""
        with serving(at_once(repository(self.pair, streaming=False, loops=(1,)))) as server:
            instant(self.report, server, self.runs, self.tokens)

    def logits(self) -> None:
        """Measure the cost of acceptance by logits."""
        files = at_once(repository(self.pair, streaming=False, pipelined=0))
        modes.logits(self.report, files, self.runs, 4 * self.tokens)

    def memory(self) -> None:
        """Measure the memory of requests in flight."""
        memory(self.report, self.pair)

    def grid(self) -> None:
        """Measure several acceptance rates, draft lengths and step times."""
        modes.grid(self.report, self.folder, self.tokens)


PARTS: dict[str, Callable[[Bench], None]] = {
    part.__name__: part
    for part in (
        Bench.rows,
        Bench.adaptive,
        Bench.simulated,
        Bench.traces,
        Bench.instant,
        Bench.logits,
        Bench.memory,
        Bench.grid,
    )
}


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark the BLS")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part (all)")
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        pair = build(Path(folder), ACCEPTANCE, 64, 2 * LENGTH)
        bench = Bench(report, pair, Path(folder), options.runs, options.tokens)
        for name in options.part or PARTS:
            PARTS[name](bench)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
