"""Whether rounds wait for each other only where it helps, with many rows a call and with one.

The engines take time and compute nothing, so the figures show the time of the BLS. Either the
in-flight calls share the steps of an engine, or each call runs at its own speed.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

from bench.baseline.cycle import Pair
from bench.baseline.load import (
    BLS,
    CLIENTS,
    drive,
    repository,
    serving,
    simulated,
    steadily,
)
from specdec.triton.plan import Synchronization
from support.bench_report import Report

_KINDS: tuple[Synchronization, ...] = ("Measured", "Never", "Always")
# Goals: _ONE and _MANY are shares of the bound, _OWN is a share of the speed without waiting.
_ONE, _MANY, _OWN = 0.95, 0.85, 0.97


def shared_steps(
    report: Report, pair: Pair, rows: int, runs: int, tokens: int, seconds: float
) -> None:
    """Print shares of the bound when in-flight calls share steps."""
    one, many = [], []
    with serving(simulated(repository(pair, streaming=True, rows=rows), "Shared")) as server:
        for _ in range(runs):
            one.append(drive(server, BLS, 1, tokens, streaming=True).of_bound(1))
            load = steadily(server, BLS, CLIENTS, tokens, seconds, streaming=True)
            many.append(load.of_bound(CLIENTS))
    name = f"bls.rows_{rows}"
    report.figure(f"{name}_one_client_of_bound", one, "ratio", goal=_ONE, better="higher")
    report.figure(f"{name}_sixteen_clients_of_bound", many, "ratio", goal=_MANY, better="higher")


def own_speed(
    report: Report, pair: Pair, rows: int, runs: int, tokens: int, seconds: float
) -> None:
    """Print speeds of calls with their own speed, also as shares of the speed without waiting."""
    speeds: dict[Synchronization, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {}
        for kind in _KINDS:
            files = repository(pair, streaming=True, rows=rows, synchronize=kind)
            servers[kind] = stack.enter_context(serving(simulated(files, "Own")))
        for _ in range(runs):
            for kind, server in servers.items():
                load = steadily(server, BLS, CLIENTS, tokens, seconds, streaming=True)
                speeds[kind].append(load.speed)
    name = f"bls.rows_{rows}_own_speed"
    for kind, values in speeds.items():
        report.figure(f"{name}_{kind.lower()}", values, "tokens/s", better="higher")
    for kind, goal in (("Measured", _OWN), ("Always", None)):
        pairs = zip(speeds[kind], speeds["Never"], strict=True)
        shares = [speed / never for speed, never in pairs]
        figure = f"{name}_{kind.lower()}_of_never"
        report.figure(figure, shares, "ratio", goal=goal, better="higher")
