"""Figures of the BLS bench beyond its speed with plain answers: logits, first chunks, a grid."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.baseline.clients import Client
from bench.baseline.cycle import build
from bench.baseline.load import (
    BLS,
    DRAFT_MS,
    LENGTH,
    LOGITS,
    TARGET_MS,
    drive,
    repository,
    serving,
    values,
)
from support.bench_report import Report
from support.triton_server import Server

_ROUND_MS = LENGTH * DRAFT_MS + TARGET_MS
# _FIRSTS requests measure the time to the first chunk; each generates _FEW tokens.
_FIRSTS = 40
_REPEATS = 3
_FEW = 12
_ACCEPTANCES = (0.5, 0.7, 0.8, 0.9)
_LENGTHS = (2, 4, 8)
# Milliseconds of a target step; a draft step takes a share of it.
_STEPS = (15.0, 5.0)
_DRAFT_SHARE = 0.1


def logits(report: Report, files: dict[str, str], runs: int, tokens: int) -> None:
    """Print what a megabyte of logits adds to a round, on engines that answer at once.

    Each run starts its own server. The speed of copying memory differs by up to a factor of two
    between servers, and is constant within each server.

    Args:
        files: a repository without pipelined drafting. Requests with logits never use
            it (ADR 0096), so its gain for other requests would count as a cost of the logits.
    """
    costs, plain = [], []
    for _ in range(runs):
        with serving(files) as server:
            cost, steps = _logits(server, tokens)
            costs.append(cost)
            plain.append(_copying(steps))
    report.figure("bls.logits_ms_per_mb", costs, "ms/MB")
    report.against_machine("bls.logits_per_mb", [cost / 1000 for cost in costs], goal=0.044)
    report.figure("bls.logits_one_copy_ms_per_mb", plain, "ms/MB")


def _logits(server: Server, tokens: int) -> tuple[float, int]:
    """Return the milliseconds that a megabyte of logits adds, and the tokens of a proposal."""
    # Not measured: an engine allocates memory for its first logits.
    drive(server, BLS, 1, tokens, streaming=False, use_draft_logits=True)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_REPEATS):
        for by_logits, measured in seconds.items():
            load = drive(server, BLS, 1, tokens, streaming=False, use_draft_logits=by_logits)
            measured.append(load.seconds / load.rounds)
    steps = load.drafted / load.rounds
    more = statistics.median(seconds[True]) - statistics.median(seconds[False])
    return 1000 * more / (steps * LOGITS * 4 / 1e6), round(steps)


def _copying(steps: int) -> float:
    """Return the milliseconds of copying a megabyte of logits once, to new memory."""
    source = np.ones((steps, LOGITS), np.float32)
    begun = time.perf_counter()
    for _ in range(20):
        source.copy()
    return 1000 * (time.perf_counter() - begun) / 20 / (source.nbytes / 1e6)


def chunks(report: Report, server: Server, runs: int, tokens: int) -> None:
    """Print how late a stream's chunks arrive, beyond the steps of a round, for one client."""
    firsts, gaps = [], []
    for _ in range(runs):
        late = []
        with closing(Client(server.url, BLS, streaming=True)) as client:
            for request in range(_FIRSTS):
                begun = time.perf_counter()
                times = client.ask(**values(0, request, _FEW), stream=True)
                late.append(1000 * (times[0] - begun) - _ROUND_MS)
            times = client.ask(**values(0, 0, tokens), stream=True)
            apart = [1000 * (after - before) - _ROUND_MS for before, after in pairwise(times[:-1])]
        firsts.append(float(np.percentile(late, 95)))
        gaps.append(float(np.percentile(apart, 99)))
    for name, late_ms, goal in (("first_chunk_p95", firsts, 2.0), ("gap_p99", gaps, 1.0)):
        report.figure(f"bls.{name}_over_a_round_ms", late_ms, "ms")
        seconds = [value / 1000 for value in late_ms]
        report.against_machine(f"bls.{name}_over_a_round", seconds, goal=goal)


def grid(report: Report, folder: Path, tokens: int) -> None:
    """Print one client's share of the bound for all acceptances and draft lengths.

    With shorter steps, the engines' own computation takes a larger share of a step.
    """
    reached: dict[float, list[float]] = {step: [] for step in _STEPS}
    for acceptance in _ACCEPTANCES:
        pair = build(folder / str(acceptance), acceptance, 64, max(_LENGTHS))
        for step in _STEPS:
            draft = _DRAFT_SHARE * step
            files = repository(pair, streaming=True, target_ms=step, draft_ms=draft)
            with serving(files) as server:
                drive(server, BLS, 1, _FEW, streaming=True)
                for length in _LENGTHS:
                    load = drive(server, BLS, 1, tokens, streaming=True, num_draft_tokens=length)
                    bound = load.drafted * draft + load.rounds * step
                    reached[step].append(bound / 1000 / load.seconds)
    for step, shares in reached.items():
        name = f"of_bound_{step:g}_ms_steps"
        report.figure(f"bls.grid_{name}", shares, "ratio", better="higher")
        report.figure(f"bls.grid_least_{name}", [min(shares)], "ratio", better="higher")
