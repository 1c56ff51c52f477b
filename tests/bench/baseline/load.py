"""Servers of the BLS bench, and clients that load them and record the use of processors."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import time
import urllib.error
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench.baseline.clients import Client, prompt
from bench.baseline.cycle import Pair
from cluster.processes import until
from specdec.backends.methods.draft_target import QUEUE_DELAY_US
from specdec.triton import library
from specdec.triton.plan import Synchronization
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support import bls
from support.triton_server import Server, installed_server

TARGET_MS, DRAFT_MS = 20.0, 2.0
LENGTH = 4
CLIENTS = 16
# Logits of a step, from engines that answer at once: the vocabulary size of Llama 3.
LOGITS = 128_256
BLS = "tensorrt_llm_bls"
_SIMULATED = "simulated_engine"
_COUNTS = ("draft_tokens", "rounds")


@dataclass(frozen=True)
class Load:
    """The results of a group of clients.

    Attributes:
        seconds: from the first request to the last answer.
        tokens: generated for all clients.
        drafted, rounds: draft tokens and verification steps, 0 for models other than the BLS.
        busy, stolen: shares of the processors' time in use, and taken by the machine's host.
    """

    seconds: float
    tokens: int
    drafted: int = 0
    rounds: int = 0
    busy: float = 0.0
    stolen: float = 0.0

    @property
    def speed(self) -> float:
        """Return the tokens per second."""
        return self.tokens / self.seconds

    def of_bound(self, clients: int) -> float:
        """Return the speed as a share of the bound, where rounds cost only their engine steps."""
        steps = (self.drafted * DRAFT_MS + self.rounds * TARGET_MS) / 1000
        return steps / clients / self.seconds


def repository(
    pair: Pair,
    *,
    streaming: bool,
    loops: Sequence[int] = (),
    target_ms: float = TARGET_MS,
    draft_ms: float = DRAFT_MS,
    rows: int = CLIENTS,
    synchronize: Synchronization = "Measured",
    pipelined: int = 1,
) -> dict[str, str]:
    """Return the files of a repository with the BLS and its sequential loops.

    Args:
        loops: number of processes of each sequential loop.
        rows: sequences whose rounds may share one engine call.
        synchronize: whether rounds of the clients wait for each other.
        pipelined: most requests in flight for which drafting is pipelined.
    """
    files = render(
        RepositoryPlan(
            version="0.19.0",
            tokenizer_dir=str(pair.tokenizer),
            target=ModelPlan(str(pair.target), (0,), step_latency_ms=target_ms),
            draft=ModelPlan(str(pair.draft), (0,), step_latency_ms=draft_ms),
            max_batch_size=CLIENTS,
            decoupled=streaming,
            draft_tokens=LENGTH,
            max_draft_tokens=2 * LENGTH,
            draft_ahead=pipelined,
            rows_per_call=rows,
            engine_queue_delay_us=0 if rows == CLIENTS else QUEUE_DELAY_US,
            synchronize_rounds=synchronize,
            max_seq_len=4096,
        )
    )
    for processes in loops:
        name = f"sequential_{processes}"
        config = files[f"{BLS}/config.pbtxt"].replace(f'"{BLS}"', f'"{name}"')
        config = config.replace("count: 1\n", f"count: {processes}\n")
        config = config.replace(f'"{library.BACKEND}"', '"python"')
        files |= {f"{name}/config.pbtxt": config, f"{name}/1/model.py": _text("sequential")}
    return files


def at_once(files: dict[str, str]) -> dict[str, str]:
    """Return the same repository with engines that answer at once."""
    for name in ("tensorrt_llm", "tensorrt_llm_draft"):
        config = files[f"{name}/config.pbtxt"].replace('"tensorrtllm"', '"python"')
        config += f'parameters {{ key: "logits" value {{ string_value: "{LOGITS}" }} }}\n'
        files |= {f"{name}/config.pbtxt": config, f"{name}/1/model.py": _text("echo")}
    return files


def simulated(
    files: dict[str, str], steps: Literal["Shared", "Own"], **more: str
) -> dict[str, str]:
    """Return the same repository with engines that take time and compute nothing.

    Args:
        steps: whether in-flight calls share steps, or each call runs at its own speed.
        more: further parameters of the engines' models.
    """
    parameters = {"simulated_steps": steps, **more}
    for name in ("tensorrt_llm", "tensorrt_llm_draft"):
        if config := files.get(f"{name}/config.pbtxt"):
            config = config.replace('"tensorrtllm"', f'"{_SIMULATED}"')
            config += "".join(
                f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
                for key, value in parameters.items()
            )
            files |= {f"{name}/config.pbtxt": config}
    return files


def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text("utf-8")


@contextmanager
def serving(files: dict[str, str]) -> Iterator[Server]:
    """Yield a running server with these files as its model repository."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(installed_server(), files, Path(folder))
        for path, text in files.items():
            if f'"{_SIMULATED}"' in text:
                model = (server.repository / path).parent
                shutil.copyfile(bls.simulated_engine(), model / f"libtriton_{_SIMULATED}.so")
        with server:
            # The metrics' port opens last.
            until(lambda: reads(server), lambda: "the metrics do not answer")
            yield server


def reads(server: Server) -> bool:
    """Return whether the server's metrics endpoint answers."""
    try:
        return bool(server.get_metrics())
    except urllib.error.URLError:
        return False


def drive(
    server: Server,
    model: str,
    clients: int,
    tokens: int,
    *,
    streaming: bool,
    **more: Any,
) -> Load:
    """Let each client send a request, wait for the last answer, and return the load.

    `more` adds inputs to the requests, or overrides the usual values.
    """

    def client(number: int) -> None:
        connected[number].ask(**values(number, 0, tokens) | more)

    with ExitStack() as stack, ThreadPoolExecutor(clients) as pool:
        connected = [
            stack.enter_context(closing(Client(server.url, model, streaming=streaming)))
            for _ in range(clients)
        ]
        before = _Moment.of(server, model)
        list(pool.map(client, range(clients)))
        end = time.perf_counter()
        after = replace(_Moment.of(server, model), time=end)
    return before.load(after, clients * tokens)


def steadily(
    server: Server, model: str, clients: int, tokens: int, seconds: float, *, streaming: bool
) -> Load:
    """Measure clients that send one request after another, for `seconds` seconds.

    The measurement starts when every client has its first answer. An answer that begins before it
    or ends after it counts in proportion to the part of its time within the measurement.
    """
    over = threading.Event()
    spans: list[tuple[float, float]] = []
    answered: set[int] = set()

    def client(number: int) -> None:
        with closing(Client(server.url, model, streaming=streaming)) as one:
            for request in itertools.count():
                begun = time.perf_counter()
                one.ask(**values(number, request, tokens))
                spans.append((begun, time.perf_counter()))
                answered.add(number)
                if over.is_set():
                    return

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client, number) for number in range(clients)]
        try:
            until(lambda: len(answered) == clients, lambda: f"only {answered} have an answer")
            first = _Moment.of(server, model)
            over.wait(seconds)
            last = _Moment.of(server, model)
        finally:
            over.set()
    for future in running:
        future.result()
    shares = [
        max(0.0, min(end, last.time) - max(begun, first.time)) / (end - begun)
        for begun, end in spans
    ]
    return first.load(last, round(tokens * sum(shares)))


def values(client: int, request: int, tokens: int) -> dict[str, Any]:
    """Return the inputs of a client's request."""
    return {
        "text_input": prompt(client, request),
        "max_tokens": tokens,
        "num_draft_tokens": LENGTH,
        "end_id": -1,
    }


@dataclass(frozen=True)
class _Moment:
    """The time, the counters of the BLS and the processor ticks at one moment."""

    time: float
    counts: tuple[int, ...]
    ticks: tuple[int, ...]

    @classmethod
    def of(cls, server: Server, model: str) -> _Moment:
        counts = [0.0, 0.0]
        if model == BLS:
            counts = [server.metric(f"specdec_{name}_total") for name in _COUNTS]
        return cls(time.perf_counter(), tuple(map(int, counts)), tuple(_ticks()))

    def load(self, later: _Moment, tokens: int) -> Load:
        """Return the load between this moment and a later one."""
        used = [after - before for after, before in zip(later.ticks, self.ticks, strict=True)]
        drafted, rounds = (b - a for a, b in zip(self.counts, later.counts, strict=True))
        return Load(
            later.time - self.time,
            tokens,
            drafted,
            rounds,
            busy=1 - (used[3] + used[4] + used[7]) / sum(used),
            stolen=used[7] / sum(used),
        )


def _ticks() -> list[int]:
    line = Path("/proc/stat").read_text("ascii").splitlines()[0]
    return [int(word) for word in line.split()[1:9]]
