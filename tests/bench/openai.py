"""The cost of the OpenAI endpoint: processor time of a piece, latency of the first, memory.

`make bench NAME=openai` prints one JSON line per figure and exits 1 if a goal is missed. Servers
stamp every piece with their clock, so no figure contains the latency of engines. 16 clients stream
at a time. A small server (`baseline/clock.py`) serves for pieces without pauses. A tritonserver
with a model that stamps (`baseline/stamps.py`) serves for lone pieces and the first piece. There
the clients stream in turns through the endpoint and from Triton's `generate_stream`. The latency
of a first piece is the time from the client's request to that piece, minus the time that the model
waited.

`python -m bench.openai --against REVISION` prints one line: the processor time of a lone piece and
the latency of first pieces of this version, of a git revision, and of Triton's `generate_stream`,
measured in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from bench.baseline.load import serving as triton
from bench.client import CHUNK_SECONDS, stamping
from specdec.triton.model_names import BLS, PREPROCESSING
from support.bench_report import Report
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.processor_time import processor_seconds
from support.triton_server import Server

STREAMS = 16
# Pieces of a short and a long answer: the difference of their costs gives that of a piece.
SHORT, LONG = 2, 42
# Pause between pieces that is so short that the endpoint is busy all the time.
BUSY_SECONDS = 0.002
# The goal of a piece that arrives alone: microseconds on a machine where tritonserver uses 130 for
# a piece of `generate_stream`, and their ratio.
LONE_MICROSECONDS, LONE_RATIO = 300, 2.3
_STAMPS = re.compile(rb'"text(?:_output)?": ?"([0-9.]+) ([0-9.]+)"')
_END = b"\r\n0\r\n\r\n"
_PATHS = {
    "endpoint": ("/v1/completions", {"model": MODEL, "prompt": "x", "stream": True}),
    "generate_stream": (f"/v2/models/{BLS}/generate_stream", {"text_input": "x"}),
}

THIS: Mapping[str, Path | None] = {"endpoint": None}


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
def serving_triton(
    pieces: int, seconds: float, sources: Mapping[str, Path | None] = THIS
) -> Iterator[tuple[Server, dict[str, OpenAIEndpoint]]]:
    """Yield a stamping tritonserver, and an endpoint in front of it for each source."""
    with (
        tempfile.TemporaryDirectory() as folder,
        triton(repository(pieces, seconds)) as server,
        ExitStack() as stack,
    ):
        yield (
            server,
            {
                name: stack.enter_context(OpenAIEndpoint(server.url, Path(folder), (), source))
                for name, source in sources.items()
            },
        )


async def lone_pieces(
    server: Server, endpoints: Mapping[str, OpenAIEndpoint], repeats: int
) -> dict[str, float]:
    """Return the processor time of a piece in microseconds, of each endpoint and of Triton.

    The time of Triton is that of the server's own process, which sends the pieces as HTTP.
    """
    served = {name: (each.port, each.process.pid) for name, each in endpoints.items()}
    served["generate_stream"] = (server.http_port, server.processes()[0])
    times = dict.fromkeys(served, 0.0)
    pieces = dict.fromkeys(served, 0)
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(clients_of(name, port))
            for name, (port, _) in served.items()
        }
        for _ in range(repeats):
            for name, (_, process) in served.items():
                before = processor_seconds(process)
                pieces[name] += (await clients[name].streams())[1]
                times[name] += processor_seconds(process) - before
    return {name: 1e6 * times[name] / pieces[name] for name in served}


def against(revision: str, runs: int, repeats: int) -> int:
    """Print the comparison with a revision; return 0 if this version meets the goal."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "operator"], check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        sources = {"endpoint": None, revision: Path(folder) / "operator"}
        with serving_triton(LONG, CHUNK_SECONDS, sources) as (server, endpoints):
            results = [asyncio.run(lone_pieces(server, endpoints, repeats)) for _ in range(runs)]
        with serving_triton(SHORT, CHUNK_SECONDS, sources) as (server, endpoints):
            ports = {name: each.port for name, each in endpoints.items()}
            ports["generate_stream"] = server.http_port
            firsts = asyncio.run(latencies(ports, runs * repeats * 10))
    medians = {name: statistics.median(r[name] for r in results) for name in results[0]}
    line = {
        "name": "openai.cpu_us_per_lone_piece",
        **{name: round(value, 1) for name, value in medians.items()},
        "unit": "us",
        "goal": LONE_MICROSECONDS,
        "met": medians["endpoint"] <= LONE_MICROSECONDS,
        "runs": runs,
        **{
            f"first_piece_p{share}_ms": {
                name: round(float(np.percentile(values, share)), 2)
                for name, values in firsts.items()
            }
            for share in (50, 99)
        },
        "machine_load": os.getloadavg()[0],
    }
    print(json.dumps(line), flush=True)
    return 0 if line["met"] else 1


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
    """Print the processor time of a lone piece, of a piece without pauses, and of a request."""
    with serving_triton(LONG, CHUNK_SECONDS) as (server, endpoints):
        results = [asyncio.run(lone_pieces(server, endpoints, repeats)) for _ in range(runs)]
    ours, theirs = ([result[name] for result in results] for name in _PATHS)
    report.figure("openai.cpu_us_per_piece", ours, "us")
    report.figure("openai.generate_stream_cpu_us_per_piece", theirs, "us")
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    report.figure("openai.cpu_per_piece_of_generate_stream", ratios, "ratio", goal=LONE_RATIO)
    pieces, requests = [], []
    for _ in range(runs):
        short = request_microseconds(SHORT, BUSY_SECONDS, repeats * 4)
        long = request_microseconds(LONG, BUSY_SECONDS, repeats)
        pieces.append((long - short) / (LONG - SHORT))
        requests.append(short - SHORT * pieces[-1])
    report.figure("openai.cpu_us_per_busy_piece", pieces, "us")
    report.figure("openai.cpu_us_per_request", requests, "us")


async def latencies(ports: Mapping[str, int], repeats: int) -> dict[str, list[float]]:
    """Measure all servers in turns; return the latencies of first pieces in milliseconds."""
    firsts: dict[str, list[float]] = {name: [] for name in ports}
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(clients_of(name, port))
            for name, port in ports.items()
        }
        for _ in range(repeats):
            for name, each in clients.items():
                firsts[name] += (await each.streams())[0]
    return {name: [1000 * value for value in values] for name, values in firsts.items()}


def clients_of(name: str, port: int) -> Clients:
    """Return the clients of `generate_stream`, or else of an endpoint."""
    return Clients(port, name if name in _PATHS else "endpoint", CHUNK_SECONDS)


def measure(report: Report, runs: int, repeats: int) -> None:
    """Print every figure."""
    costs(report, runs, repeats)
    with serving_triton(SHORT, CHUNK_SECONDS) as (server, endpoints):
        endpoint = endpoints["endpoint"]
        ports = {"endpoint": endpoint.port, "generate_stream": server.http_port}
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
    parser.add_argument("--against", metavar="REVISION", help="compare lone pieces with it")
    options = parser.parse_args()
    if options.against:
        return against(options.against, options.runs, options.repeats)
    report = Report()
    measure(report, options.runs, options.repeats)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
