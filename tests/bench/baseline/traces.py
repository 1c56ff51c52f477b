"""The memory that many requests leave behind in the server's process, which runs the BLS."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import tritonclient.grpc as grpc

from bench.baseline.clients import Client
from bench.baseline.load import BLS, CLIENTS, values
from support.bench_report import Report
from support.server_memory import memory_of
from support.triton_server import Server

_TOKENS = 8
# Of twelve requests, the server answers ten and refuses one, and the client cancels one.
_OF = 12
_REFUSED, _GIVEN_UP = 10, 11
_REQUESTS = 12_096
_RUNS = 3
# Requests of the warm-up, in which the allocator still takes memory that it keeps.
_WARM = 18_000
_GROWTH = 0.02
_MB = 1e6


def traces(report: Report, server: Server) -> None:
    """Print what 10 000 answers, 1 000 refusals and 1 000 cancels add to a warm server.

    One measured growth proves little: the allocator sometimes takes memory and keeps it.
    """
    _ask(server, _WARM)
    shared = memory_of(server).shared
    counts, growths = [], []
    for _ in range(_RUNS):
        before = resident(server)
        counts.append(_ask(server, _REQUESTS))
        growths.append(resident(server) / before - 1)
    answered, refused, given_up = zip(*counts, strict=True)
    report.figure("bls.traces_answered", answered, "requests", goal=10_000, better="higher")
    report.figure("bls.traces_refused", refused, "requests", goal=1_000, better="higher")
    report.figure("bls.traces_given_up", given_up, "requests", goal=1_000, better="higher")
    report.figure("bls.traces_resident_growth", growths, "", goal=_GROWTH)
    report.figure(
        "bls.traces_shm_growth", [(memory_of(server).shared - shared) / _MB], "MB", goal=0
    )


def resident(server: Server) -> float:
    """Return the resident bytes of the server's own process."""
    status = Path(f"/proc/{server.processes()[0]}/status").read_text("ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def _ask(server: Server, requests: int) -> tuple[int, int, int]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        each = requests // CLIENTS
        counts = list(pool.map(lambda number: _client(server, number, each), range(CLIENTS)))
    answered, refused, given_up = (sum(ones) for ones in zip(*counts, strict=True))
    return answered, refused, given_up


def _client(server: Server, number: int, requests: int) -> tuple[int, int, int]:
    """Return the numbers of answers, refusals and cancels. A cancel closes the connection."""
    counts = [0, 0, 0]
    turns = itertools.count(number)
    while sum(counts) < requests:
        with closing(Client(server.url, BLS, streaming=True)) as one:
            given_up = False
            while sum(counts) < requests and not given_up:
                turn = next(turns)
                given_up = turn % _OF == _GIVEN_UP
                if given_up:
                    one.give_up(**values(number, turn, 64 * _TOKENS), stream=True)
                    counts[2] += 1
                elif turn % _OF == _REFUSED:
                    counts[1] += _is_refused(one, number, turn)
                else:
                    one.ask(**values(number, turn, _TOKENS), stream=True)
                    counts[0] += 1
    return counts[0], counts[1], counts[2]


def _is_refused(client: Client, number: int, turn: int) -> bool:
    try:
        client.ask(**values(number, turn, _TOKENS) | {"max_tokens": 0})
    except grpc.InferenceServerException:
        return True
    return False
