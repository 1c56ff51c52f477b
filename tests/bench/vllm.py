"""The speed of vLLM in Triton with a draft model, against vLLM without drafts.

`make bench NAME=vllm` prints one JSON line a figure and exits 1 when a goal is missed. Two servers
of the shipped pair answer the same greedy requests in turns. They need `make vllm` and 4 GiB.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec.triton.model_names import VLLM
from support.bench_report import Report
from support.processor_time import processor_seconds
from support.shipped_pair import PAIR
from support.triton_client import Arrays, ask
from support.triton_server import Server
from support.vllm_tests import alone, installed
from support.vllm_triton import DRAFTS, engines, repository, started

TOKENS = 128
CLIENTS = 16
ALONE = 12  # requests of the single client in a turn


@dataclass(frozen=True)
class Turn:
    """What a server did in a turn.

    Attributes:
        speed: tokens per second of all clients.
        costs: milliseconds of a processor for a token, by process.
    """

    speed: float
    costs: Mapping[str, float]


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark vLLM in Triton with a draft model")
    parser.add_argument("--runs", type=int, default=3)
    report = Report()
    runs: int = parser.parse_args().runs
    with alone(), _server(None) as plain, _server(DRAFTS) as drafted:
        for server in (plain, drafted):
            turn(server, CLIENTS)
        for clients, goal in ((1, 1.2), (CLIENTS, None)):
            turns = [(turn(plain, clients), turn(drafted, clients)) for _ in range(runs)]
            _report(report, f"vllm.clients_{clients}", turns, goal)
    report.figure("vllm.machine_load", [os.getloadavg()[0]], "processes")
    return report.exit_status()


def _report(
    report: Report, name: str, turns: Sequence[tuple[Turn, Turn]], goal: float | None
) -> None:
    """Print the speeds, and the processor time, which other programs hardly change."""
    for kind, own in zip(("plain", "drafts"), zip(*turns, strict=True), strict=True):
        report.figure(f"{name}_{kind}", [t.speed for t in own], "tokens/s", better="higher")
        for process in own[0].costs:
            costs = [t.costs[process] for t in own]
            report.figure(f"{name}_{kind}_{process}", costs, "ms/token")
    ratios = [drafts.speed / plain.speed for plain, drafts in turns]
    report.figure(f"{name}_speedup", ratios, "ratio", goal=goal, better="higher")
    costs = [plain.costs["engine"] / drafts.costs["engine"] for plain, drafts in turns]
    report.figure(f"{name}_engine_speedup", costs, "ratio", better="higher")


def turn(server: Server, clients: int) -> Turn:
    """Let clients send their requests, two each, or ALONE of a single client."""
    prompts = _prompts()[: 2 * clients if clients > 1 else ALONE]
    (engine,) = engines(server)
    processes = {"engine": engine, "model": server.process_of(VLLM)}
    before = {name: processor_seconds(pid) for name, pid in processes.items()}
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        parts = threads.map(lambda prompt: ask(server.url, VLLM, **_inputs(prompt))[-1], prompts)
        tokens = sum(int(part["num_output_tokens"][0]) for part in parts)
    speed = tokens / (time.perf_counter() - begun)
    seconds = {name: processor_seconds(pid) - before[name] for name, pid in processes.items()}
    return Turn(speed, {name: value / tokens * 1e3 for name, value in seconds.items()})


@contextmanager
def _server(drafts: Mapping[str, Any] | None) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="vllm-") as folder,
        started(installed(), repository(drafts), Path(folder)) as server,
    ):
        yield server


def _prompts() -> list[str]:
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [str(json.loads(line)["prompt"]) for line in lines]


def _inputs(prompt: str) -> Arrays:
    sampling = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    texts = {"text_input": prompt, "sampling_parameters": json.dumps(sampling)}
    coded = {name: np.array([text.encode()], np.object_) for name, text in texts.items()}
    return {**coded, "return_num_output_tokens": np.array([True])}


if __name__ == "__main__":
    raise SystemExit(main())
