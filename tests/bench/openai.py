"""The cost of the OpenAI endpoint: processor time of a piece, latency of the first, memory.

`make bench NAME=openai` prints one JSON line per figure and exits 1 if a goal is missed. Servers
stamp every piece with their clock, so no figure contains the latency of engines. 16 clients stream
at a time. A small server (`baseline/clock.py`) serves for the processor time. A tritonserver with
a model that stamps (`baseline/stamps.py`) serves for the first piece. There the clients stream in
turns through the endpoint and from Triton's `generate_stream`. The latency of a first piece is the
time from the client's request to that piece, minus the time that the model waited.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from bench.baseline.load import serving as triton
from bench.client import CHUNK_SECONDS, stamping
from specdec.triton.model_names import BLS, PREPROCESSING
from support.bench_report import Report
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.processor_time import processor_seconds

STREAMS = 16
# Pieces of a short and a long answer: the difference of their costs gives that of a piece.
SHORT, LONG = 2, 42
# Pause between pieces that is so short that the endpoint is busy all the time.
BUSY_SECONDS = 0.002
_STAMPS = re.compile(rb'"text(?:_output)?": ?"([0-9.]+) ([0-9.]+)"')
_END = b"\r\n0\r\n\r\n"
_PATHS = {
    "endpoint": ("/v1/completions", {"model": MODEL, "prompt": "x", "stream": True}),
    "generate_stream": (f"/v2/models/{BLS}/generate_stream", {"text_input": "x"}),
}


class Clients:
    """16 clients, each with its own open connection."""

    def __init__(self, port: int, name: str, pause: float) -> None:
        self._port, self._pause = port, pause
        path, body = _PATHS[name]
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n"
        self._request = head.encode() + data
        self._open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __aenter__(self) -> Self:
        for _ in range(STREAMS):
            self._open.append(await asyncio.open_connection("127.0.0.1", self._port))
        await self.streams()
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, writer in self._open:
            writer.close()

    async def streams(self) -> tuple[list[float], int]:
        """Run a stream per client; return latencies of first pieces and the number of pieces."""
        results = await asyncio.gather(*map(self._stream, range(STREAMS)))
        return [first for first, _ in results], sum(pieces for _, pieces in results)

    async def _stream(self, number: int) -> tuple[float, int]:
        # Real clients do not start at the same time.
        await asyncio.sleep(number * self._pause / STREAMS)
        reader, writer = self._open[number]
        began = time.perf_counter()
        writer.write(self._request)
        first, pieces, tail = 0.0, 0, b""
        while not tail.endswith(_END):
            received = await reader.read(1 << 16)
            if not received:
                raise RuntimeError(f"the stream ended early: {tail!r}")
            now = time.perf_counter()
            stamps = _STAMPS.findall(received)
            if stamps and not first:
                first = now - began - (float(stamps[0][1]) - float(stamps[0][0]))
            pieces += len(stamps)
            tail = (tail + received)[-len(_END) :]
        return first, pieces


@contextmanager
def serving(chunks: int, seconds: float) -> Iterator[tuple[OpenAIEndpoint, dict[str, int]]]:
    """Yield an endpoint in front of a small stamping server, and the ports of both."""
    with (
        tempfile.TemporaryDirectory() as folder,
        stamping(chunks, seconds) as ports,
        OpenAIEndpoint(f"127.0.0.1:{ports['grpc']}", Path(folder)) as endpoint,
    ):
        yield endpoint, {"endpoint": endpoint.port, "generate_stream": ports["http"]}


def repository(pieces: int, seconds: float) -> dict[str, str]:
    """Return files of a stamping model, also as `preprocessing`: the endpoint reads its config."""
    inputs = {
        "text_input": "STRING",
        "max_tokens": "INT32",
        "stream": "BOOL",
        "exclude_input_in_output": "BOOL",
    }
    config = f'backend: "python"\nmax_batch_size: {STREAMS}\n'
    config += "model_transaction_policy { decoupled: true }\n"
    for name, kind in inputs.items():
        config += f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [1] optional: true }}\n'
    config += 'output { name: "text_output" data_type: TYPE_STRING dims: [1] }\n'
    for key, value in {"pieces": pieces, "seconds": seconds}.items():
        config += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    model = (Path(__file__).parent / "baseline" / "stamps.py").read_text("utf-8")
    files: dict[str, str] = {}
    for name in (BLS, PREPROCESSING):
        files |= {f"{name}/config.pbtxt": f'name: "{name}"\n{config}', f"{name}/1/model.py": model}
    return files


@contextmanager
def serving_triton(pieces: int, seconds: float) -> Iterator[tuple[OpenAIEndpoint, dict[str, int]]]:
    """Yield an endpoint in front of a stamping tritonserver, and the ports of both."""
    with (
        tempfile.TemporaryDirectory() as folder,
        triton(repository(pieces, seconds)) as server,
        OpenAIEndpoint(server.url, Path(folder)) as endpoint,
    ):
        yield endpoint, {"endpoint": endpoint.port, "generate_stream": server.http_port}


def request_microseconds(chunks: int, seconds: float, repeats: int) -> float:
    """Return the processor time of one request whose answer has `chunks` pieces."""

    async def run(endpoint: OpenAIEndpoint) -> float:
        async with Clients(endpoint.port, "endpoint", seconds) as clients:
            before = processor_seconds(endpoint.process.pid)
            for _ in range(repeats):
                await clients.streams()
            return processor_seconds(endpoint.process.pid) - before

    with serving(chunks, seconds) as (endpoint, _):
        return 1e6 * asyncio.run(run(endpoint)) / (repeats * STREAMS)


def costs(report: Report, runs: int, repeats: int) -> None:
    """Print the processor time of a piece and of a request."""
    for name, seconds in (("piece", CHUNK_SECONDS), ("busy_piece", BUSY_SECONDS)):
        pieces, requests = [], []
        for _ in range(runs):
            short = request_microseconds(SHORT, seconds, repeats * 4)
            long = request_microseconds(LONG, seconds, repeats)
            piece = (long - short) / (LONG - SHORT)
            pieces.append(piece)
            requests.append(short - SHORT * piece)
        report.figure(f"openai.cpu_us_per_{name}", pieces, "us")
        if seconds == CHUNK_SECONDS:
            times = [piece / 1e6 for piece in pieces]
            report.against_machine("openai.cpu_per_piece", times, goal=0.03)
        report.figure(f"openai.cpu_us_per_request_with_{name}", requests, "us")


async def latencies(ports: dict[str, int], repeats: int) -> dict[str, list[float]]:
    """Measure both in turns; return the latencies of first pieces in milliseconds."""
    firsts: dict[str, list[float]] = {name: [] for name in ports}
    async with (
        Clients(ports["endpoint"], "endpoint", CHUNK_SECONDS) as ours,
        Clients(ports["generate_stream"], "generate_stream", CHUNK_SECONDS) as theirs,
    ):
        for _ in range(repeats):
            firsts["endpoint"] += (await ours.streams())[0]
            firsts["generate_stream"] += (await theirs.streams())[0]
    return {name: [1000 * value for value in values] for name, values in firsts.items()}


def measure(report: Report, runs: int, repeats: int) -> None:
    """Print every figure."""
    costs(report, runs, repeats)
    with serving_triton(SHORT, CHUNK_SECONDS) as (endpoint, ports):
        results = [asyncio.run(latencies(ports, repeats * 10)) for _ in range(runs)]
        memory = endpoint.memory_bytes() / (1 << 20)
    late = {name: [float(np.percentile(result[name], 99)) for result in results] for name in ports}
    added = [ours - theirs for ours, theirs in zip(*late.values(), strict=True)]
    report.figure("openai.first_piece_added_p99_ms", added, "ms")
    seconds = [value / 1000 for value in added]
    report.against_machine("openai.first_piece_added_p99", seconds, goal=0.4)
    for name in ports:
        report.figure(f"openai.{name}_first_piece_p99_ms", late[name], "ms")
        # The maximum of all runs: a garbage collection affects fewer than one in a hundred pieces.
        worst = max(max(result[name]) for result in results)
        report.figure(f"openai.{name}_first_piece_worst_ms", [worst], "ms")
    report.figure("openai.memory_mib", [memory], "MiB", goal=120.0)
    report.figure("openai.machine_load", [os.getloadavg()[0]], "processes")


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark the OpenAI endpoint")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="of 16 streams, in each run")
    options = parser.parse_args()
    report = Report()
    measure(report, options.runs, options.repeats)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
