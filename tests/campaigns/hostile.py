"""Thousands of hostile clients of the OpenAI endpoint and of the proxy, under their memory limits.

`make campaign NAME=hostile` starts each program with the command and the memory limit of its
container, and sends 10 000 clients of `campaigns/hostile_clients.py` to it over loopback.
During this, a good client sends one request after the other. Like the package `openai`, it repeats
a request that gets status 429 or 503. Each gets its answer, and the program is never killed. A
script takes the place of the server behind the program.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.hostile_clients import Client, drawn, post
from cluster.processes import DEADLINE_SECONDS
from support.bench_report import Report
from support.memory_limit import Peak, container_limit, limited
from support.planned_samples import planned
from support.ports import reserved

CLIENTS = 10_000
AT_A_TIME = 128
# The good client gives up after this time, which is half of the limit for an answer in the sample.
GOOD_SECONDS = 60.0
_SAMPLES = {"endpoint": "reference-openai", "proxy": "pytorch-trtllm-serve"}
_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
_OK = "HTTP/1.1 200 OK"
_REPEATED = ("HTTP/1.1 429 ", "HTTP/1.1 503 ")
_TESTS = Path(__file__).parents[1]


@dataclass
class Program:
    """A running program: its process, its port, its model's name and its memory limit in bytes."""

    process: subprocess.Popen[bytes]
    port: int
    model: str
    limit: int
    peak: Peak = field(default_factory=Peak)


@dataclass
class Outcome:
    """How the clients ended.

    Attributes:
        ends: hostile clients by their kind and the first line of the answer.
        seconds: of each good request.
        repeated: answers after which a good request was repeated.
        failures: first lines of the answers to good requests that failed.
    """

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@contextmanager
def program(name: str, upstream: int) -> Iterator[Program]:
    """Start a program as its container does.

    Args:
        name: a key of `_SAMPLES`.
        upstream: the port of the server behind the proxy.
    """
    (deployment,) = [o for o in planned(_SAMPLES[name]).objects if o["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][1]
    options = dict(zip(container["command"][3::2], container["command"][4::2], strict=True))
    limit = container_limit(container)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "chat_template.jinja").write_text(_TEMPLATE, "utf-8")
        port, metrics = stack.enter_context(reserved(2))
        options |= {"--host": "127.0.0.1", "--port": str(port)}
        if name == "endpoint":
            module = "support.scripted_endpoint"
            options |= {"--tokenizer": str(folder)}
            del options["--chat-template"]
        else:
            module = "specdec.images.openai.proxy"
            options |= {"--upstream": f"127.0.0.1:{upstream}", "--metrics-port": str(metrics)}
        arguments = (part for pair in options.items() for part in pair)
        command = [sys.executable, "-m", module, *arguments]
        command = stack.enter_context(limited(command, limit))
        path = os.pathsep.join((str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])))
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
        try:
            yield Program(process, port, options["--served-model-name"], limit)
        finally:
            process.kill()
            process.wait()


async def attacked(running: Program, count: int, seed: int) -> Outcome:
    """Send hostile clients from another process, and good requests from this one.

    Args:
        running: the program.
        count: number of hostile clients.
        seed: of their kinds.
    """
    await started(running)
    outcome = Outcome()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as attackers:
        attack = attackers.submit(_attack, running.port, running.model, count, seed)
        while not attack.done():
            await answered(running, outcome)
            running.peak.update(running.process.pid)
            await asyncio.sleep(0.05)
        outcome.ends = attack.result()
    await answered(running, outcome)
    return outcome


def _attack(port: int, model: str, count: int, seed: int) -> Counter[tuple[str, str]]:
    """Send hostile clients, and return their kinds with the first lines of the answers."""
    random_numbers, ends = random.Random(seed), Counter[tuple[str, str]]()
    numbers = iter(range(count))

    async def worker() -> None:
        for _ in numbers:
            kind, client = drawn(random_numbers, model)
            ends[kind, await client.run(port)] += 1

    async def all_workers() -> None:
        await asyncio.gather(*(worker() for _ in range(AT_A_TIME)))

    asyncio.run(all_workers())
    return ends


async def started(running: Program) -> None:
    """Wait until the program answers."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await _request(running).run(running.port) != _OK:
            if running.process.poll() is not None:
                raise RuntimeError(f"the program ended with {running.process.returncode}")
            await asyncio.sleep(0.1)


async def answered(running: Program, outcome: Outcome) -> None:
    """Send a good request; completions and chats take turns."""
    began = time.perf_counter()
    request = _request(running, chat=len(outcome.seconds) % 2 == 1)
    end = await request.run(running.port)
    while end.startswith(_REPEATED) and time.perf_counter() < began + GOOD_SECONDS:
        outcome.repeated.append(end)
        await asyncio.sleep(1)
        end = await request.run(running.port)
    outcome.seconds.append(time.perf_counter() - began)
    if end != _OK:
        outcome.failures.append(end)


def _request(running: Program, *, chat: bool = False) -> Client:
    messages = [{"role": "user", "content": "hi"}]
    fields: dict[str, Any] = {"messages": messages} if chat else {"prompt": "hi"}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    body = json.dumps({"model": running.model, "max_tokens": 4, **fields}).encode()
    return Client(post(path, body), seconds=GOOD_SECONDS)


async def _upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request of the proxy; a prompt with `endless` gets events until it leaves."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0"
        body = await reader.readexactly(int(length))
        if b'"endless"' in body:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            while True:
                writer.write(b"data: " + b"x" * 8192 + b"\n\n")
                await writer.drain()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
    writer.close()


async def run(name: str, count: int, seed: int) -> tuple[Program, Outcome]:
    """Attack one program, and return it and the outcome."""
    server = await asyncio.start_server(_upstream, "127.0.0.1", 0)
    async with server:
        with program(name, server.sockets[0].getsockname()[1]) as running:
            outcome = await attacked(running, count, seed)
            if running.process.poll() is not None:
                outcome.failures.append(f"the program ended with {running.process.returncode}")
    return running, outcome


def main() -> int:
    """Attack both programs; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = Report()
    for name in _SAMPLES:
        running, outcome = asyncio.run(run(name, options.clients, options.seed))
        for (kind, end), number in sorted(outcome.ends.items()):
            report.note(f"{name}: {kind}: {end}: {number}")
        for failure, times in Counter(outcome.failures).items():
            report.note(f"{name}: {failure}: {times}")
        report.figure(f"hostile.{name}_clients", [outcome.ends.total()], "clients")
        report.figure(f"hostile.{name}_failures", [len(outcome.failures)], "answers", goal=0)
        report.figure(f"hostile.{name}_repeated", [len(outcome.repeated)], "answers")
        report.figure(f"hostile.{name}_good_requests", [len(outcome.seconds)], "requests")
        report.figure(f"hostile.{name}_good_seconds", outcome.seconds, "s")
        report.figure(f"hostile.{name}_slowest_good", [max(outcome.seconds)], "s")
        share = running.peak.memory / running.limit
        report.figure(f"hostile.{name}_memory", [share], "of the limit", goal=1.0)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
